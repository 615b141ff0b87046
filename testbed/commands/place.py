"""Place of a command: the lab file, the directory of runs, and who reads what it says.

A place belongs to one call. Lines for people are printed at once and kept; under `--json` they are only kept, and
tables are left out.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from testbed.commands.documents import UnfinishedOperation, describe_unfinished

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from testbed.lab.model import Lab
    from testbed.lab.simulated.lifecycle import HostsChoice
    from testbed.operate.session import LabSession

DEFAULT_RUNS = Path("runs")


@dataclass
class Place:
    """The surroundings of one command."""

    lab_file: Path | None = None
    runs_dir: Path = DEFAULT_RUNS
    is_quiet: bool = False
    """Lines are for nobody: the document is."""
    lines: list[str] = field(default_factory=list)
    """Lines for people, as far as they were said."""
    stream: TextIO | None = None
    """Where they are printed, in place of standard output."""
    lab_files: tuple[Path, ...] = ()
    """Lab files of a command that may be about several labs."""

    @cached_property
    def lab(self) -> Lab:
        """The lab of the file. Raises `LabFileError`."""
        from testbed.lab.inventory import load_lab

        assert self.lab_file is not None, "the command has declared that it needs no lab"
        return load_lab(self.lab_file)

    @cached_property
    def running_lab(self) -> Lab:
        """The lab as it runs: a simulated one has the addresses of its processes. Raises also `LabNotRunning`."""
        from testbed.lab.simulated.lifecycle import find_running

        return find_running(self.lab)

    def say(self, *lines: str) -> None:
        """Say lines to people."""
        self.lines += lines
        for line in () if self.is_quiet else lines:
            print(line, file=self.stream or sys.stdout)

    def say_table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Say a table. Numbers are aligned to the right when every cell of a column is one."""
        if self.is_quiet:
            return
        from rich.console import Console
        from rich.table import Table

        table = Table(header_style="bold")
        for index, column in enumerate(columns):
            is_numeric = all(_is_number(row[index]) for row in rows)
            table.add_column(column, justify="right" if is_numeric else "left", overflow="fold")
        for row in rows:
            table.add_row(*(f"{cell:,.1f}" if isinstance(cell, float) else str(cell) for cell in row))
        console = Console(file=self.stream)
        if not console.is_terminal:
            console.width = 160
        console.print(title, style="italic", highlight=False, soft_wrap=True)
        console.print(table)

    def tell(self, text: str) -> None:
        """Say something at once on standard error, whatever standard output is for."""
        print(text, file=sys.stderr, flush=True)

    def confirm(self, question: str) -> bool:
        """Return whether the person at the terminal says yes; the question goes to standard error.

        The end of input is an interruption. Another word than yes and no is asked about again.
        """
        while True:
            print(f"{question} [y/N]: ", end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            if not line:
                raise KeyboardInterrupt
            word = line.strip().lower()
            if word in ("", "n", "no", "y", "yes"):
                return word in ("y", "yes")

    def find_unfinished(self, lab: Lab | None = None) -> tuple[UnfinishedOperation, ...]:
        """Return the operations of the lab that were left unfinished; a journal that cannot be read is one.

        `lab` is one that an option names.
        """
        from testbed.operate.unfinished import find_unfinished_or_error

        return describe_unfinished(find_unfinished_or_error(self.runs_dir, lab or self.lab))

    def say_unfinished(self, lab: Lab | None = None) -> tuple[UnfinishedOperation, ...]:
        """Return the same, and say a line for each."""
        operations = self.find_unfinished(lab)
        self.say(*(each.line() for each in operations))
        return operations

    @contextmanager
    def session(
        self, lab: Lab, hosts: HostsChoice | None = None, *, writes: bool = False, partial: bool = False
    ) -> Iterator[LabSession]:
        """Provide the lab opened: its switches, and its hosts where `hosts` says which.

        With `writes` it may be changed, which the journal keeps; a `partial` one goes on without what does not answer.
        """
        from testbed.lab.simulated.lifecycle import hosts_of
        from testbed.operate.session import open_lab

        are_modelled = hosts is None or hosts_of(lab, hosts) == "model"
        with ExitStack() as stack:
            journal = None
            if writes:
                from testbed.operate.journal import journal_in  # SQLAlchemy: only for what writes

                journal = stack.enter_context(journal_in(self.runs_dir))
            yield stack.enter_context(open_lab(lab, journal, model_hosts=are_modelled, partial=partial))


def _is_number(cell: object) -> bool:
    try:
        float(str(cell))
    except ValueError:
        return False
    return True
