"""Execution of one program on the machine: the machine's cells, in lists or arrays, and the records so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.twins.rfsoc.processor import COUNT_DTYPE, PIN_DTYPE, WRITE_DTYPE, ReadInput, Run
from sim.twins.rfsoc.tproc_v2 import cells, machine
from sim.twins.rfsoc.tproc_v2.cells import Cells
from sim.twins.rfsoc.tproc_v2.machine import compute_tick


class Execution:
    """The cells of a running machine. `dmem` and `wmem` are flat sequences of unsigned numbers."""

    def __init__(
        self,
        code: list[int],
        registers: Mapping[int, int],
        state: Mapping[int, int],
        dmem: list[int],
        wmem: list[int],
    ) -> None:
        self._code: Cells = code
        self._registers: Cells = [registers.get(index, 0) for index in range(cells.REGISTER_COUNT)]
        self._state: Cells = [state.get(index, 0) for index in range(cells.STATE_SIZE)]
        self.dmem: Cells = dmem
        self.wmem: Cells = wmem
        self._departure_ticks: Cells = [0] * (cells.QUEUE_COUNT * self._state[cells.QUEUE_DEPTH])
        self._pushed_counts: Cells = [0] * cells.QUEUE_COUNT
        self._records: Cells = [0] * (cells.MAX_RECORDS * cells.RECORD_LENGTH)
        self._execute: Callable[..., int] = machine.execute
        self._collected_records: list[npt.NDArray[np.int64]] = []
        self.is_compiled = False

    @property
    def address(self) -> int:
        """Program counter."""
        return int(self._state[cells.PC])

    @property
    def step_count(self) -> int:
        """Number of instructions executed so far."""
        return int(self._state[cells.STEP_COUNT])

    def use_compiled_code(self, execute: Callable[..., int]) -> None:
        """Continue with `execute`, which is compiled and needs arrays."""
        for name in (
            "_code",
            "_registers",
            "_state",
            "dmem",
            "wmem",
            "_departure_ticks",
            "_pushed_counts",
            "_records",
        ):
            setattr(self, name, np.array(getattr(self, name), np.int64))
        self._execute = execute
        self.is_compiled = True

    def run_until_stop(self, pause_step: int) -> int:
        """Run until the machine stops, at most until `pause_step` instructions in total. Return the stop code."""
        self._state[cells.PAUSE_AT] = pause_step
        return int(
            self._execute(
                self._code,
                self._registers,
                self._state,
                self.dmem,
                self.wmem,
                self._departure_ticks,
                self._pushed_counts,
                self._records,
            )
        )

    def answer_read(self, read_input: ReadInput) -> None:
        """Read the input port that the program requests, and put both halves into registers of the program."""
        port, now_tick = int(self._state[cells.INPUT_PORT]), int(compute_tick(self._state))
        for half in (0, 1):
            self._registers[8 + half] = read_input(port, half, now_tick) & cells.WORD_MASK

    def collect_records(self) -> None:
        """Move the records of the machine to the result, and clear them."""
        record_count = int(self._state[cells.RECORD_COUNT])
        records = np.array(self._records[: record_count * cells.RECORD_LENGTH], np.int64)
        self._collected_records.append(records.reshape(record_count, cells.RECORD_LENGTH))
        self._state[cells.RECORD_COUNT] = 0

    def list_registers(self) -> list[int]:
        """Return all registers: special registers, data registers, then wave registers."""
        return [int(value) for value in self._registers]

    def make_run(self) -> Run:
        """Return all collected events as a `Run`, each kind in order of time."""
        table = np.concatenate(self._collected_records)
        return Run(
            port_writes=_make_writes(table[table[:, 0] == cells.WAVE_OUT]),
            pin_events=_make_pins(table[table[:, 0] <= cells.TRIGGER_PIN]),
            counter_events=_make_counts(table[table[:, 0] == cells.COUNTER]),
            end_tick=int(compute_tick(self._state)),
        )


def _sort_by_time(table: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return records sorted by time. Records of the same tick stay in the order in which the program sent them."""
    return table[np.argsort(table[:, 2], kind="stable")]


def _make_writes(table: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    table = _sort_by_time(table)
    writes = np.zeros(len(table), WRITE_DTYPE)
    writes["port"], writes["time"], writes["words"] = table[:, 1], table[:, 2], table[:, 3:9]
    return writes


def _make_pins(table: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    table = _sort_by_time(table)
    pins = np.zeros(len(table), PIN_DTYPE)
    pins["kind"], pins["port"], pins["time"], pins["word"] = (
        table[:, 0],
        table[:, 1],
        table[:, 2],
        table[:, 3],
    )
    return pins


def _make_counts(table: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    counts = np.zeros(len(table), COUNT_DTYPE)
    counts["address"], counts["time"], counts["value"] = table[:, 1], table[:, 2], table[:, 3]
    return counts
