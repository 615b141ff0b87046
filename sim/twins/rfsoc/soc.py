"""`SimulatedSoc`: the twin under the names of QICK's `QickSoc`, which is what QICK's programs call.

What is simulated takes what QICK's takes, returns the same types in the same shapes, and refuses what QICK's driver
refuses. The other names are in `LACKING`, and raise `NotSimulated` when they are used; what is neither there nor in
the class does not exist in QICK 0.2.436 (a test compares with its source). Each name is there: a proxy over Pyro4
knows only what it finds in the class, and would call a missing one unknown. The streaming readout is QICK's own
`DataStreamer`.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt
import qick
from qick import obtain
from qick.qick_asm import QickConfig

from sim.twins.rfsoc.assembly import assemble
from sim.twins.rfsoc.board import TRANSFER_S
from sim.twins.rfsoc.not_simulated import NotSimulated, NotSimulatedAttribute
from sim.twins.rfsoc.processor import ProgramError

FLUSH_S = 0.1

Class = TypeVar("Class", bound=type)

LACKING: Mapping[str, str] = {
    "arm_ddr4": "the DDR4 buffer",
    "arm_mr": "the multi-rate buffer",
    "avg_bufs": "the buffers' own drivers",
    "clear_ddr4": "the DDR4 buffer",
    "config_clocks": "programming of the clock chips",
    "config_mux_gen": "a multiplexed generator",
    "config_mux_readout": "a multiplexed readout",
    "download": "loading of a bitstream",
    "freeze_adc_cals": "the background calibration of converters",
    "gens": "the generators' own drivers",
    "get_adc_attenuator": "the attenuator of third-generation converters",
    "get_ddr4": "the DDR4 buffer",
    "get_mr": "the multi-rate buffer",
    "ip_dict": "a firmware description",
    "iqs": "a generator of constant I and Q",
    "load_weights": "a weighted buffer",
    "map_signal_paths": "reading of a firmware description",
    "metadata": "a firmware description",
    "pl_reset": "a reset of the programmable logic",
    "readouts": "the readouts' own drivers",
    "rf": "the driver of the data converters",
    "round_sample_rate": "a change of sample rates",
    "set_adc_attenuator": "the attenuator of third-generation converters",
    "set_all_clks": "programming of the clock chips",
    "set_iq": "a generator of constant I and Q",
    "time_taggers": "a time tagger",
    "tproc": "direct access to the processor's registers",
    "tt_arm": "a time tagger",
    "tt_config": "a time tagger",
    "tt_disarm": "a time tagger",
    "tt_readmem": "a time tagger",
    "tt_reset": "a time tagger",
    "unfreeze_adc_cals": "the background calibration of converters",
    "valid_sample_rates": "a change of sample rates",
}

ATTRIBUTES = frozenset(
    {"avg_bufs", "gens", "ip_dict", "iqs", "metadata", "readouts", "rf", "time_taggers", "tproc"}
)
"""Those that are no methods: looking at them is refused, and `hasattr` says no."""


class TwinDevice(QickConfig):  # type: ignore[misc] # QICK has no types
    """A simulated board with what is cabled to it, as the configuration that QICK's programs are compiled for.

    Raises `AddressError` for an address that names none.
    """

    def __init__(self, address: str) -> None:
        made = assemble(address)
        cfg = made.board.cfg
        cfg["sw_version"] = qick.get_version()
        super().__init__(cfg)
        self.address = address
        self.knobs = made.knobs
        self._identity = made.identity
        self._plant = made.plant
        self._board = made.board
        self.TPROC_VERSION = made.board.core.version

    @property
    def simulated(self) -> bool:
        """True: no result of this device is a measurement."""
        return True

    @property
    def identity(self) -> str:
        """Name of this device, the same at every connection."""
        return self._identity

    def factory_calibration(self) -> dict[str, Any] | None:
        """Return the calibration document that came with this device; None for one without."""
        made = getattr(self._plant, "factory_calibration", None)
        return None if made is None else cast("dict[str, Any] | None", made())

    def bench(self) -> dict[str, str]:
        """VISA resources of the laboratory instruments around the kit, by role; they begin to serve when asked for."""
        made = getattr(self._plant, "bench", None)
        return {} if made is None else cast("dict[str, str]", made())

    def close(self) -> None:
        """Stop the instruments of the bench; does nothing where there are none."""
        closed = getattr(self._plant, "close", None)
        if closed is not None:
            closed()

    def elapse(self, seconds: float) -> None:
        """Advance device time for everything that drifts."""
        self._board.elapse(seconds)

    def pulse_start_pin(self) -> None:
        """Start the program by a pulse at its pin, where the start source is "external"."""
        if self._board.source == "external":
            self._board.start()

    def get_knob(self, name: str) -> Any:
        """Return the position of a knob."""
        return self.knobs[name]

    def set_knob(self, name: str, value: Any) -> None:
        """Turn a knob. Raises `KeyError` and `ValueError`."""
        self.knobs[name] = value


def refusing(owner: Class) -> Class:
    """Return the class with everything that is lacking, to be refused by its name when it is used."""
    for name, about in LACKING.items():
        what = f"QickSoc.{name} ({about})"
        setattr(owner, name, _attribute(what) if name in ATTRIBUTES else _method(name, what))
    return owner


def _attribute(what: str) -> property:
    def refuse(_: object) -> NoReturn:
        raise NotSimulatedAttribute(what)

    return property(refuse, doc=f"Refused: {what}.")


def _method(name: str, what: str) -> Callable[..., NoReturn]:
    def refuse(_: object, *__: Any, **___: Any) -> NoReturn:
        raise NotSimulated(what)

    refuse.__name__ = name
    refuse.__doc__ = f"Refused: {what}."
    return refuse


@refusing
class SimulatedSoc(TwinDevice):
    """The methods of `QickSoc` that programs, and people, call."""

    def __init__(self, address: str = "sim://kit") -> None:
        super().__init__(address)
        self._streaming: Streaming | None = None

    def close(self) -> None:
        """End what runs in parallel: the reader of sums and the bench; both begin again when they are asked for."""
        if self._streaming is not None:
            self._streaming.close()
            self._streaming = None
        super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -------------------------------------------------------------------------------- clocks
    def clocks_locked(self) -> bool:
        """Return True if all converters follow the reference clock."""
        self._board.touch()
        return self._board.clock_factor == 1.0

    def get_sample_rates(self) -> dict[str, dict[int, float]]:
        """Return megasamples per second, by kind of converter and tile."""
        self._board.touch()
        factor = self._board.clock_factor
        tiles = self["rf"]["tiles"]
        return {
            kind: {int(k): tile["fs"] * factor for k, tile in tiles[kind].items()} for kind in ("dac", "adc")
        }

    # ---------------------------------------------------------------------------- generators
    def load_envelope(self, ch: int, data: Any, addr: int) -> None:
        """Envelope samples (n, 2), I and Q of 16 bits, from address `addr` on."""
        self._board.touch(TRANSFER_S)
        self._board.load_envelope(ch, np.array(obtain(data), dtype=np.int16).reshape(-1, 2), addr)

    def set_nyquist(self, ch: int, nqz: int, force: bool = False) -> None:
        """Nyquist zone 1 or 2; the twin's converters are flat, so it is checked and otherwise means nothing."""
        self._board.touch()
        if nqz not in {1, 2}:
            raise RuntimeError(f"the Nyquist zone must be 1 or 2, not {nqz}")
        self["gens"][ch]

    def set_mixer_freq(
        self, ch: int, f: float, ro_ch: int | None = None, phase_reset: bool = True, fullscale: bool = False
    ) -> None:
        """Refuse: no generator of the twin's boards has a mixer."""
        self._board.touch()
        if f != 0:
            raise RuntimeError(f"generator {ch} has no mixer: its mixer frequency must be 0, not {f}")

    def reset_gens(self) -> None:
        """End what generators still play."""
        self._board.touch()
        self._board.silence()

    # ------------------------------------------------------------------------------ readouts
    def configure_readout(self, ch: int, ro_regs: Mapping[str, Any]) -> None:
        """Downconversion and output of a readout that the host configures."""
        self._board.touch()
        self._board.settle(ch)
        self._board.readouts[ch].configure(obtain(ro_regs))

    def config_avg(
        self,
        ch: int,
        address: int = 0,
        length: int = 1,
        edge_counting: bool = False,
        high_threshold: int = 1000,
        low_threshold: int = 0,
    ) -> None:
        """Set where sums go and over how many samples; must then be enabled."""
        self._board.touch()
        if edge_counting and self["readouts"][ch]["has_edge_counter"]:
            raise NotSimulated("counting of edges in a readout", "sum the samples instead")
        self._board.settle(ch)
        self._board.readouts[ch].buffer.config_avg(address, length)

    def config_buf(self, ch: int, address: int = 0, length: int = 1) -> None:
        """Set where samples go and how many; must then be enabled."""
        self._board.touch()
        self._board.settle(ch)
        self._board.readouts[ch].buffer.config_buf(address, length)

    def enable_buf(self, ch: int, enable_avg: bool = True, enable_buf: bool = True) -> None:
        """Choose whether triggers store sums, samples or both."""
        self._board.touch()
        self._board.enable(ch, avg=enable_avg, buf=enable_buf)

    def get_decimated(self, ch: int, address: int = 0, length: int | None = None) -> npt.NDArray[np.int16]:
        """Return (length, 2), I and Q of 16 bits."""
        return cast("npt.NDArray[np.int16]", self._transfer(ch, "samples", address, length, "buf_maxlen"))

    def get_accumulated(self, ch: int, address: int = 0, length: int | None = None) -> npt.NDArray[np.int32]:
        """Return (length, 2), I and Q of 32 bits."""
        return cast("npt.NDArray[np.int32]", self._transfer(ch, "sums", address, length, "avg_maxlen"))

    def _transfer(self, ch: int, what: str, address: int, length: int | None, most: str) -> Any:
        with self._board.lock:
            self._board.touch(TRANSFER_S)
            self._board.settle(ch)
            asked = self["readouts"][ch][most] if length is None else int(length)
            return getattr(self._board.readouts[ch].buffer, what)(int(address), asked)

    # ----------------------------------------------------------------------------- processor
    def load_bin_program(self, binprog: Any, load_mem: bool = True) -> None:
        """Program memory, and waveform and data memory where there are some. Raises `ProgramError`."""
        self._board.touch(TRANSFER_S)
        program = obtain(binprog)
        if self.TPROC_VERSION == 2 and not isinstance(program, Mapping):
            raise ProgramError(
                "this program is for the processor of version 1, but the board has version 2; write it with "
                "AveragerProgramV2 or QickProgramV2"
            )
        self._board.load_program(program, load_mem=load_mem)

    def reload_mem(self) -> None:
        """Waveform and data memory as the program brought them (version 2)."""
        self._board.touch()
        self._board.core.reload_mem()

    def load_mem(self, data: Any, mem_sel: str = "dmem", addr: int = 0) -> None:
        """Write a block of memory: (n,) for "dmem", (n, 8) for "pmem" and "wmem"."""
        self._board.touch(TRANSFER_S)
        self._known_memory(mem_sel)
        self._board.core.load_mem(mem_sel, np.array(obtain(data), dtype=np.int32), addr)

    def read_mem(self, length: int, mem_sel: str = "dmem", addr: int = 0) -> npt.NDArray[np.int32]:
        """Read a block of memory."""
        self._board.touch(TRANSFER_S)
        self._known_memory(mem_sel)
        return self._board.core.read_mem(mem_sel, length, addr)

    def _known_memory(self, mem_sel: str) -> None:
        if mem_sel not in ({"dmem"} if self.TPROC_VERSION == 1 else {"pmem", "dmem", "wmem"}):
            raise RuntimeError(
                f"a processor of version {self.TPROC_VERSION} has no accessible memory {mem_sel!r}"
            )

    def start_src(self, src: str) -> None:
        """Set whether the program is started by `start_tproc` ("internal") or by a pin ("external")."""
        if src not in {"internal", "external"}:
            raise RuntimeError(f"a program starts from 'internal' or 'external', not {src!r}")
        self._board.touch()
        if self.TPROC_VERSION == 2:
            self._board.stop()
        self._board.source = src

    def start_tproc(self) -> None:
        """Start the program at its beginning, unless a pin is to start it.

        A processor of version 1 whose program is under way goes on with it.
        """
        with self._board.lock:
            self._board.touch()
            if self._board.source == "internal":
                self._board.start()

    def stop_tproc(self, lazy: bool = False) -> None:
        """Stop the program; `lazy` stops only a processor of version 2, where it is easy."""
        with self._board.lock:
            self._board.touch()
            if self.TPROC_VERSION == 2 or not lazy:
                self._board.stop()

    def clear_tproc_counter(self, addr: int) -> None:
        """Counter of shots to zero."""
        self._board.touch()
        self._board.clear_counter(addr)

    def get_tproc_counter(self, addr: int) -> int:
        """Return the counter of shots as it is now; looking takes device time.

        Raises `KeyError` on a processor of version 2 for another than 1 and 2.
        """
        with self._board.lock:
            self._board.touch(0.0)
            if self.TPROC_VERSION == 2 and addr not in {1, 2}:
                raise KeyError(addr)  # as QICK's, which has a register for each of the two
            return self._board.counter(addr)

    def prepare_round(self) -> None:
        """Do nothing, as on a board."""

    def cleanup_round(self) -> None:
        """Do nothing, as on a board."""

    # ----------------------------------------------------------------------------- streaming
    @property
    def autoproxy(self) -> list[Any]:
        """Objects that QICK's server registers besides."""
        return [self.streamer]

    @property
    def streamer(self) -> Any:
        """QICK's reader of sums."""
        if self._streaming is None:
            self._streaming = Streaming(self)
        return self._streaming.streamer

    def start_readout(
        self,
        total_shots: int,
        counter_addr: int = 1,
        ch_list: Sequence[int] | None = None,
        reads_per_shot: int | Sequence[int] = 1,
        stride: int | None = None,
    ) -> None:
        """Start the program and read sums while it runs."""
        channels = [0, 1] if ch_list is None else obtain(ch_list)
        reads = obtain(reads_per_shot)
        if isinstance(reads, int):
            reads = [reads] * len(channels)
        assert self.streamer is not None
        assert self._streaming is not None
        self._streaming.start(total_shots, counter_addr, channels, reads, stride)

    def poll_data(self, totaltime: float = 0.1, timeout: float | None = None) -> list[tuple[int, Any]]:
        """Return (shots, (sums by readout, statistics)), oldest first."""
        assert self.streamer is not None
        assert self._streaming is not None
        return self._streaming.poll(totaltime, timeout)


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


def _end(streamer: Any) -> None:
    """End a thread that waits for a job; one that is at work ends when it next asks the board."""
    streamer.job_queue.put(LastJob())


class Streaming:
    """Reader of sums, in a thread of its own while the program runs.

    It begins with the first readout, and ends with the board.
    """

    def __init__(self, soc: Any) -> None:
        self._reader = Reader(soc)
        from qick.streamer import DataStreamer

        self.streamer = type("DataStreamer", (DataStreamer,), {"WORKERTYPE": ReaderThread})(self._reader)
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
        for old in (streamer.data_queue, streamer.error_queue):
            while not old.empty():
                old.get(timeout=FLUSH_S)
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
