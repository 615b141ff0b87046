"""`SimulatedSoc`: the twin with the interface of QICK's `QickSoc`, which QICK's programs call.

Simulated methods accept the same arguments as QICK's, return the same types and shapes, and refuse what QICK's driver
refuses. All other names of QICK 0.2.436 are in `UNSIMULATED_MEMBERS`, and raise `NotSimulated` when they are used. A
test compares them with QICK's source. They exist in the class because a Pyro4 proxy would otherwise report them as
unknown. The streaming readout is QICK's own `DataStreamer`.
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

from sim.twins.rfsoc.assembly import assemble_twin
from sim.twins.rfsoc.board import TRANSFER_DURATION_S
from sim.twins.rfsoc.not_simulated import NotSimulated, NotSimulatedAttribute
from sim.twins.rfsoc.processor import ProgramError

FLUSH_TIMEOUT_S = 0.1

Class = TypeVar("Class", bound=type)

UNSIMULATED_MEMBERS: Mapping[str, str] = {
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

UNSIMULATED_ATTRIBUTES = frozenset(
    {"avg_bufs", "gens", "ip_dict", "iqs", "metadata", "readouts", "rf", "time_taggers", "tproc"}
)
"""Names of `UNSIMULATED_MEMBERS` that are attributes. Reading them raises an error, and `hasattr` returns False."""


class TwinDevice(QickConfig):  # type: ignore[misc] # QICK has no types
    """A simulated board with its plant. It is also the `QickConfig` for which QICK compiles programs.

    Raise `AddressError` for an invalid address.
    """

    def __init__(self, address: str) -> None:
        assembly = assemble_twin(address)
        cfg = assembly.board.cfg
        cfg["sw_version"] = qick.get_version()
        super().__init__(cfg)
        self.address = address
        self.knobs = assembly.knobs
        self._identity = assembly.identity
        self._plant = assembly.plant
        self._board = assembly.board
        self.TPROC_VERSION = assembly.board.core.version

    @property
    def simulated(self) -> bool:
        """Always True: no result of this device is a measurement."""
        return True

    @property
    def identity(self) -> str:
        """Name of this device, the same at every connection."""
        return self._identity

    def factory_calibration(self) -> dict[str, Any] | None:
        """Return the factory calibration document of this device, or None."""
        method = getattr(self._plant, "factory_calibration", None)
        return None if method is None else cast("dict[str, Any] | None", method())

    def bench(self) -> dict[str, str]:
        """Return the VISA resources of the kit's laboratory instruments, by role. The first call starts them."""
        method = getattr(self._plant, "bench", None)
        return {} if method is None else cast("dict[str, str]", method())

    def close(self) -> None:
        """Stop the laboratory instruments, if there are any."""
        method = getattr(self._plant, "close", None)
        if method is not None:
            method()

    def elapse(self, duration_s: float) -> None:
        """Advance the device time and the plant."""
        self._board.elapse(duration_s)

    def pulse_start_pin(self) -> None:
        """Send a pulse to the start pin. The pulse starts the program if the start source is "external"."""
        if self._board.start_source == "external":
            self._board.start()

    def get_knob(self, name: str) -> Any:
        """Return the value of a knob. Raise `KeyError` for an unknown name."""
        return self.knobs[name]

    def set_knob(self, name: str, value: Any) -> None:
        """Set a knob. Raise `KeyError` for an unknown name, and `ValueError` for an invalid value."""
        self.knobs[name] = value


def add_unsimulated_members(owner: Class) -> Class:
    """Add a member that raises `NotSimulated` to a class for every name of `UNSIMULATED_MEMBERS`. Return the class."""
    for name, description in UNSIMULATED_MEMBERS.items():
        feature = f"QickSoc.{name} ({description})"
        setattr(
            owner,
            name,
            _make_attribute(feature) if name in UNSIMULATED_ATTRIBUTES else _make_method(name, feature),
        )
    return owner


def _make_attribute(feature: str) -> property:
    def refuse(_: object) -> NoReturn:
        raise NotSimulatedAttribute(feature)

    return property(refuse, doc=f"Refused: {feature}.")


def _make_method(name: str, feature: str) -> Callable[..., NoReturn]:
    def refuse(_: object, *__: Any, **___: Any) -> NoReturn:
        raise NotSimulated(feature)

    refuse.__name__ = name
    refuse.__doc__ = f"Refused: {feature}."
    return refuse


@add_unsimulated_members
class SimulatedSoc(TwinDevice):
    """A simulated board with the methods of `QickSoc` that programs and users call."""

    def __init__(self, address: str = "sim://kit") -> None:
        super().__init__(address)
        self._streaming_reader: StreamingReader | None = None

    def close(self) -> None:
        """Stop the streaming reader and the laboratory instruments. Both start again when they are used."""
        if self._streaming_reader is not None:
            self._streaming_reader.close()
            self._streaming_reader = None
        super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -------------------------------------------------------------------------------- clocks
    def clocks_locked(self) -> bool:
        """Return True if all converters are locked to the reference clock."""
        self._board.begin_call()
        return self._board.clock_factor == 1.0

    def get_sample_rates(self) -> dict[str, dict[int, float]]:
        """Return the sample rates in MS/s, by kind of converter and tile."""
        self._board.begin_call()
        factor = self._board.clock_factor
        tiles = self["rf"]["tiles"]
        return {
            kind: {int(k): tile["fs"] * factor for k, tile in tiles[kind].items()} for kind in ("dac", "adc")
        }

    # ---------------------------------------------------------------------------- generators
    def load_envelope(self, ch: int, data: Any, addr: int) -> None:
        """Write envelope samples (n, 2), I and Q of 16 bits, from address `addr`."""
        self._board.begin_call(TRANSFER_DURATION_S)
        self._board.load_envelope(ch, np.array(obtain(data), dtype=np.int16).reshape(-1, 2), addr)

    def set_nyquist(self, ch: int, nqz: int, force: bool = False) -> None:
        """Raise `RuntimeError` unless the Nyquist zone is 1 or 2. The zone has no effect, as converters are flat."""
        self._board.begin_call()
        if nqz not in {1, 2}:
            raise RuntimeError(f"the Nyquist zone must be 1 or 2, not {nqz}")
        self["gens"][ch]

    def set_mixer_freq(
        self, ch: int, f: float, ro_ch: int | None = None, phase_reset: bool = True, fullscale: bool = False
    ) -> None:
        """Raise `RuntimeError` for a frequency other than 0, because the twin's generators have no mixer."""
        self._board.begin_call()
        if f != 0:
            raise RuntimeError(f"generator {ch} has no mixer: its mixer frequency must be 0, not {f}")

    def reset_gens(self) -> None:
        """Stop the program and all generators."""
        self._board.begin_call()
        self._board.stop_generators()

    # ------------------------------------------------------------------------------ readouts
    def configure_readout(self, ch: int, ro_regs: Mapping[str, Any]) -> None:
        """Set the downconversion and output of a readout that the host configures."""
        self._board.begin_call()
        self._board.store_ended_windows(ch)
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
        """Set the address and window length of sums. Call `enable_buf` afterwards."""
        self._board.begin_call()
        if edge_counting and self["readouts"][ch]["has_edge_counter"]:
            raise NotSimulated("counting of edges in a readout", "sum the samples instead")
        self._board.store_ended_windows(ch)
        self._board.readouts[ch].buffer.config_avg(address, length)

    def config_buf(self, ch: int, address: int = 0, length: int = 1) -> None:
        """Set the address and window length of samples. Call `enable_buf` afterwards."""
        self._board.begin_call()
        self._board.store_ended_windows(ch)
        self._board.readouts[ch].buffer.config_buf(address, length)

    def enable_buf(self, ch: int, enable_avg: bool = True, enable_buf: bool = True) -> None:
        """Make triggers store sums (`enable_avg`), samples (`enable_buf`) or both."""
        self._board.begin_call()
        self._board.enable_readout(ch, avg=enable_avg, buf=enable_buf)

    def get_decimated(self, ch: int, address: int = 0, length: int | None = None) -> npt.NDArray[np.int16]:
        """Return stored samples (length, 2), I and Q of 16 bits."""
        return cast(
            "npt.NDArray[np.int16]", self._transfer(ch, "read_samples", address, length, "buf_maxlen")
        )

    def get_accumulated(self, ch: int, address: int = 0, length: int | None = None) -> npt.NDArray[np.int32]:
        """Return stored sums (length, 2), I and Q of 32 bits."""
        return cast("npt.NDArray[np.int32]", self._transfer(ch, "read_sums", address, length, "avg_maxlen"))

    def _transfer(self, ch: int, method_name: str, address: int, length: int | None, size_key: str) -> Any:
        with self._board.lock:
            self._board.begin_call(TRANSFER_DURATION_S)
            self._board.store_ended_windows(ch)
            count = self["readouts"][ch][size_key] if length is None else int(length)
            return getattr(self._board.readouts[ch].buffer, method_name)(int(address), count)

    # ----------------------------------------------------------------------------- processor
    def load_bin_program(self, binprog: Any, load_mem: bool = True) -> None:
        """Load a program, and its waveform and data memory if it has any. Raise `ProgramError`."""
        self._board.begin_call(TRANSFER_DURATION_S)
        program = obtain(binprog)
        if self.TPROC_VERSION == 2 and not isinstance(program, Mapping):
            raise ProgramError(
                "this program is for the processor of version 1, but the board has version 2; write it with "
                "AveragerProgramV2 or QickProgramV2"
            )
        self._board.load_program(program, load_mem=load_mem)

    def reload_mem(self) -> None:
        """Restore waveform and data memory to the contents of the loaded program (version 2)."""
        self._board.begin_call()
        self._board.core.reload_mem()

    def load_mem(self, data: Any, mem_sel: str = "dmem", addr: int = 0) -> None:
        """Write a block of memory: (n,) for "dmem", (n, 8) for "pmem" and "wmem"."""
        self._board.begin_call(TRANSFER_DURATION_S)
        self._check_memory(mem_sel)
        self._board.core.load_mem(mem_sel, np.array(obtain(data), dtype=np.int32), addr)

    def read_mem(self, length: int, mem_sel: str = "dmem", addr: int = 0) -> npt.NDArray[np.int32]:
        """Return a block of memory, in the shapes of `load_mem`."""
        self._board.begin_call(TRANSFER_DURATION_S)
        self._check_memory(mem_sel)
        return self._board.core.read_mem(mem_sel, length, addr)

    def _check_memory(self, mem_sel: str) -> None:
        if mem_sel not in ({"dmem"} if self.TPROC_VERSION == 1 else {"pmem", "dmem", "wmem"}):
            raise RuntimeError(
                f"a processor of version {self.TPROC_VERSION} has no accessible memory {mem_sel!r}"
            )

    def start_src(self, src: str) -> None:
        """Select what starts the program: `start_tproc` ("internal") or a pin ("external")."""
        if src not in {"internal", "external"}:
            raise RuntimeError(f"a program starts from 'internal' or 'external', not {src!r}")
        self._board.begin_call()
        if self.TPROC_VERSION == 2:
            self._board.stop()
        self._board.start_source = src

    def start_tproc(self) -> None:
        """Start the program at its beginning, unless the start source is a pin.

        A processor of version 1 ignores this while its program is running.
        """
        with self._board.lock:
            self._board.begin_call()
            if self._board.start_source == "internal":
                self._board.start()

    def stop_tproc(self, lazy: bool = False) -> None:
        """Stop the program. With `lazy`, do nothing on a processor of version 1, like QICK."""
        with self._board.lock:
            self._board.begin_call()
            if self.TPROC_VERSION == 2 or not lazy:
                self._board.stop()

    def clear_tproc_counter(self, addr: int) -> None:
        """Set the shot counter at an address to zero."""
        self._board.begin_call()
        self._board.clear_counter(addr)

    def get_tproc_counter(self, addr: int) -> int:
        """Spend the device time of a read, and return the current shot counter.

        Raise `KeyError` on a processor of version 2 for an address other than 1 and 2.
        """
        with self._board.lock:
            self._board.begin_call(0.0)
            if self.TPROC_VERSION == 2 and addr not in {1, 2}:
                raise KeyError(addr)  # as in QICK, which has a register for each of the two addresses
            return self._board.read_counter(addr)

    def prepare_round(self) -> None:
        """Do nothing, as `QickSoc` does."""

    def cleanup_round(self) -> None:
        """Do nothing, as `QickSoc` does."""

    # ----------------------------------------------------------------------------- streaming
    @property
    def autoproxy(self) -> list[Any]:
        """Additional objects that QICK's server registers."""
        return [self.streamer]

    @property
    def streamer(self) -> Any:
        """QICK's streaming reader of sums. The first use creates it."""
        if self._streaming_reader is None:
            self._streaming_reader = StreamingReader(self)
        return self._streaming_reader.streamer

    def start_readout(
        self,
        total_shots: int,
        counter_addr: int = 1,
        ch_list: Sequence[int] | None = None,
        reads_per_shot: int | Sequence[int] = 1,
        stride: int | None = None,
    ) -> None:
        """Start the program, and read sums in a thread while it runs. `poll_data` returns the sums."""
        channels = [0, 1] if ch_list is None else obtain(ch_list)
        reads = obtain(reads_per_shot)
        if isinstance(reads, int):
            reads = [reads] * len(channels)
        assert self.streamer is not None
        assert self._streaming_reader is not None
        self._streaming_reader.start(total_shots, counter_addr, channels, reads, stride)

    def poll_data(self, totaltime: float = 0.1, timeout: float | None = None) -> list[tuple[int, Any]]:
        """Return new data as (shots, (sums by readout, statistics)), oldest first."""
        assert self.streamer is not None
        assert self._streaming_reader is not None
        return self._streaming_reader.poll(totaltime, timeout)


class BoardDeleted(BaseException):
    """The board of a reader has been deleted. It is a `BaseException`, because QICK's loop catches any `Exception`."""


class WeakBoard:
    """The board for QICK's streaming reader, through a weak reference.

    At its end, the reader always sets the start source. If the board has been deleted, this must not raise another
    exception in the thread, which would hide the first exception.
    """

    def __init__(self, soc: Any) -> None:
        self._soc = weakref.ref(soc)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._board(), name)

    def __getitem__(self, key: str) -> Any:
        return self._board()[key]

    def start_src(self, src: str) -> None:
        """Set the start source of the board, if the board still exists and answers."""
        with contextlib.suppress(ConnectionError, BoardDeleted):
            self._board().start_src(src)

    def _board(self) -> Any:
        soc = self._soc()
        if soc is None:
            raise BoardDeleted
        return soc


class StopJob:
    """A job that ends the reader's thread, because unpacking it raises `BoardDeleted`."""

    def __iter__(self) -> Iterator[Any]:
        raise BoardDeleted


class ReaderThread(threading.Thread):
    """The reader's thread. `BoardDeleted` ends it without an error message."""

    def run(self) -> None:
        """Run the thread until `BoardDeleted` or its normal end."""
        with contextlib.suppress(BoardDeleted):
            super().run()


def _end_reader_thread(streamer: Any) -> None:
    """End the reader's thread: now if it waits for a job, otherwise at its next access to the board."""
    streamer.job_queue.put(StopJob())


class StreamingReader:
    """Streaming reader of sums, in a separate thread while the program runs.

    The thread starts with the first readout, and ends when the board is deleted.
    """

    def __init__(self, soc: Any) -> None:
        self._reader = WeakBoard(soc)
        from qick.streamer import DataStreamer

        self.streamer = type("DataStreamer", (DataStreamer,), {"WORKERTYPE": ReaderThread})(self._reader)
        self._reader_finalizer = weakref.finalize(soc, _end_reader_thread, self.streamer)
        self._reader_finalizer.atexit = False

    def close(self) -> None:
        """End the reader and its thread, and abandon its current job."""
        self.streamer.stop_readout()
        self._reader_finalizer()
        self.streamer.readout_worker.join()

    def start(
        self,
        shot_count: int,
        counter_address: int,
        channels: Sequence[int],
        reads_per_shot: Sequence[int],
        stride: int | None,
    ) -> None:
        """Start to read `shot_count` shots. First stop a readout that is still running."""
        streamer = self.streamer
        if not streamer.readout_worker.is_alive():
            streamer.start_worker()
        if streamer.readout_running():
            self._reader.stop_tproc()
            streamer.stop_readout()
            streamer.done_flag.wait()
            streamer.data_queue.put((0, None))
        streamer.stop_flag.clear()
        for old_queue in (streamer.data_queue, streamer.error_queue):
            while not old_queue.empty():
                old_queue.get(timeout=FLUSH_TIMEOUT_S)
        streamer.total_count, streamer.count = shot_count, 0
        streamer.done_flag.clear()
        streamer.job_queue.put((shot_count, counter_address, list(channels), list(reads_per_shot), stride))

    def poll(self, totaltime: float, timeout: float | None) -> list[tuple[int, Any]]:
        """Return new data, oldest first. Wait as long as `QickSoc.poll_data` waits.

        Raise `RuntimeError` if the reader failed.
        """
        streamer = self.streamer
        end = time.monotonic() + totaltime
        results: list[tuple[int, Any]] = []
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
            results.append((length, data))
        return results

    def _raise_failure(self) -> None:
        try:
            failure = self.streamer.error_queue.get(block=False)
        except queue.Empty:
            return
        raise RuntimeError(f"the reader of sums has failed: {failure}") from failure
