"""The lab options of pytest, and the function that skips a test that does not fit the lab."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from testbed.lab.model import Lab
from testbed.lab.simulated.lifecycle import HostsChoice


@dataclass(frozen=True, slots=True)
class LabOptions:
    """The lab options of pytest."""

    file: Path | None
    server: str | None
    name: str | None
    hosts_choice: HostsChoice
    runs_dir: Path
    wait_s: float
    really_move: str | None
    board: str | None

    @classmethod
    def from_config(cls, config: pytest.Config) -> LabOptions:
        """Return the options. Raises `pytest.UsageError` for options that exclude each other or are malformed."""
        if config.option.lab and config.option.lab_server:
            raise pytest.UsageError(
                "--lab and --lab-server exclude each other: the service has its own lab files"
            )
        board = config.option.lab_board
        if board and not all(board.partition("=")):
            raise pytest.UsageError(
                f"--lab-board {board}: write NAME=ADDRESS, for example kit1=qick://10.0.0.7"
            )
        return cls(
            file=Path(config.option.lab).absolute() if config.option.lab else None,
            server=config.option.lab_server,
            name=config.option.lab_name,
            hosts_choice=config.option.lab_hosts,
            runs_dir=Path(config.option.lab_runs_dir or os.environ.get("LIGHTBED_RUNS", "runs")).absolute(),
            wait_s=config.option.lab_wait,
            really_move=config.option.lab_really_move,
            board=board,
        )


def skip(lab: Lab, reason: str) -> NoReturn:
    """Skip the test, because the lab does not fit it."""
    pytest.skip(f"lab '{lab.name}': {reason}")
