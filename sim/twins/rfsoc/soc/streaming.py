"""The streaming readout: QICK's own `DataStreamer`, unmodified, and the two calls of `QickSoc` that use it."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

FLUSH_S = 0.1


class Ended(BaseException):
    """The reader's board is there no more. QICK's loop goes on after every `Exception`."""


class Reader:
    """The board as QICK's streaming reader sees it, and no reason for the board to live on.

    The reader's last word in every case is to set the start source; where the board has gone, that must not end its
    thread with an exception of its own, which would hide the first.
    """

    def __init__(self, soc: Any) -> None:
        self._soc = weakref.ref(soc)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._board(), name)

    def __getitem__(self, key: str) -> Any:
        return self._board()[key]

    def start_src(self, src: str) -> None:
        """Set the start source as the board does; do nothing when it has gone."""
        with contextlib.suppress(ConnectionError, Ended):
            self._board().start_src(src)

    def _board(self) -> Any:
        soc = self._soc()
        if soc is None:
            raise Ended
        return soc


class LastJob:
    """Whoever unpacks it is at its end."""

    def __iter__(self) -> Iterator[Any]:
        raise Ended


class ReaderThread(threading.Thread):
    """The reader's thread, which can end."""

    def run(self) -> None:
        """Run as `Thread` says."""
        with contextlib.suppress(Ended):
            super().run()


def _streamer(reader: Reader) -> Any:
    """Return QICK's `DataStreamer`, in a thread of ours."""
    from qick.streamer import DataStreamer

    return type("DataStreamer", (DataStreamer,), {"WORKERTYPE": ReaderThread})(reader)


def _end(streamer: Any) -> None:
    """End a thread that waits for a job; one that is at work ends when it next asks the board."""
    streamer.job_queue.put(LastJob())


class Streaming:
    """Reader of sums, in a thread of its own while the program runs.

    It begins with the first readout, and ends with the board.
    """

    def __init__(self, soc: Any) -> None:
        self._reader = Reader(soc)
        self.streamer = _streamer(self._reader)
        self._end = weakref.finalize(soc, _end, self.streamer)
        self._end.atexit = False

    def close(self) -> None:
        """End the reader and its thread; what it is at is left there."""
        self.streamer.stop_readout()
        self._end()
        self.streamer.readout_worker.join()

    def start(
        self, shots: int, counter: int, channels: Sequence[int], reads: Sequence[int], stride: int | None
    ) -> None:
        """Begin to read so many shots; a readout that still runs is ended."""
        streamer = self.streamer
        if not streamer.readout_worker.is_alive():
            streamer.start_worker()
        if streamer.readout_running():
            self._reader.stop_tproc()
            streamer.stop_readout()
            streamer.done_flag.wait()
            streamer.data_queue.put((0, None))
        streamer.stop_flag.clear()
        self._drop_old_data()
        streamer.total_count, streamer.count = shots, 0
        streamer.done_flag.clear()
        streamer.job_queue.put((shots, counter, list(channels), list(reads), stride))

    def poll(self, totaltime: float, timeout: float | None) -> list[tuple[int, Any]]:
        """Return new data, oldest first; wait as `QickSoc.poll_data` does.

        Raises `RuntimeError` when reading failed.
        """
        streamer = self.streamer
        end = time.monotonic() + totaltime
        found: list[tuple[int, Any]] = []
        while totaltime < 0 or (streamer.count < streamer.total_count and time.monotonic() < end):
            self._raise_failure()
            try:
                length, data = streamer.data_queue.get(block=True, timeout=timeout)
            except queue.Empty:
                break
            if streamer.stop_flag.is_set() or data is None:
                break
            self._raise_failure()
            streamer.count += length
            found.append((length, data))
        return found

    def _raise_failure(self) -> None:
        try:
            failure = self.streamer.error_queue.get(block=False)
        except queue.Empty:
            return
        raise RuntimeError(f"the reader of sums has failed: {failure}") from failure

    def _drop_old_data(self) -> None:
        for old in (self.streamer.data_queue, self.streamer.error_queue):
            while not old.empty():
                old.get(timeout=FLUSH_S)
