"""`SimulatedSoc`: the twin under the names of QICK's `QickSoc`, which is what QICK's programs call.

What is simulated takes what QICK's takes, returns the same types in the same shapes, and refuses what QICK's driver
refuses; `surface` has the other names, which raise `NotSimulated` when they are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
from qick import obtain

from sim.twins.rfsoc.board import clock
from sim.twins.rfsoc.not_simulated import NotSimulated
from sim.twins.rfsoc.processor import ProgramError
from sim.twins.rfsoc.soc.device import TwinDevice
from sim.twins.rfsoc.soc.streaming import Streaming
from sim.twins.rfsoc.soc.surface import refusing


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
        self._board.touch(clock.TRANSFER_S)
        self._board.load_envelope(ch, np.array(obtain(data), dtype=np.int16).reshape(-1, 2), addr)

    def set_nyquist(self, ch: int, nqz: int, force: bool = False) -> None:
        """Nyquist zone 1 or 2; the twin's converters are flat, so it is checked and otherwise means nothing."""
        self._board.touch()
        if nqz not in {1, 2}:
            raise RuntimeError(f"there are Nyquist zones 1 and 2, not {nqz}")
        self["gens"][ch]

    def set_mixer_freq(
        self, ch: int, f: float, ro_ch: int | None = None, phase_reset: bool = True, fullscale: bool = False
    ) -> None:
        """Refuse: no generator of the twin's boards has a mixer."""
        self._board.touch()
        if f != 0:
            raise RuntimeError(f"generator {ch} has no mixer: its mixer frequency is 0, not {f}")

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
            self._board.touch(clock.TRANSFER_S)
            self._board.settle(ch)
            asked = self["readouts"][ch][most] if length is None else int(length)
            return getattr(self._board.readouts[ch].buffer, what)(int(address), asked)

    # ----------------------------------------------------------------------------- processor
    def load_bin_program(self, binprog: Any, load_mem: bool = True) -> None:
        """Program memory, and waveform and data memory where there are some. Raises `ProgramError`."""
        self._board.touch(clock.TRANSFER_S)
        program = obtain(binprog)
        if self.TPROC_VERSION == 2 and not isinstance(program, Mapping):
            raise ProgramError(
                "this program is for the processor of version 1, and the board has one of version 2; write it with "
                "AveragerProgramV2 or QickProgramV2"
            )
        self._board.load_program(program, load_mem=load_mem)

    def reload_mem(self) -> None:
        """Waveform and data memory as the program brought them (version 2)."""
        self._board.touch()
        self._board.core.reload_mem()

    def load_mem(self, data: Any, mem_sel: str = "dmem", addr: int = 0) -> None:
        """Write a block of memory: (n,) for "dmem", (n, 8) for "pmem" and "wmem"."""
        self._board.touch(clock.TRANSFER_S)
        self._known_memory(mem_sel)
        self._board.core.load_mem(mem_sel, np.array(obtain(data), dtype=np.int32), addr)

    def read_mem(self, length: int, mem_sel: str = "dmem", addr: int = 0) -> npt.NDArray[np.int32]:
        """Read a block of memory."""
        self._board.touch(clock.TRANSFER_S)
        self._known_memory(mem_sel)
        return self._board.core.read_mem(mem_sel, length, addr)

    def _known_memory(self, mem_sel: str) -> None:
        if mem_sel not in ({"dmem"} if self.TPROC_VERSION == 1 else {"pmem", "dmem", "wmem"}):
            raise RuntimeError(
                f"no memory {mem_sel!r} is open on a processor of version {self.TPROC_VERSION}"
            )

    def start_src(self, src: str) -> None:
        """Set whether the program is started by `start_tproc` ("internal") or by a pin ("external")."""
        if src not in {"internal", "external"}:
            raise RuntimeError(f"a program is started from 'internal' or 'external', not {src!r}")
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
