"""Context of a command: the lab file, the directory of runs, and where lines for people go.

A context belongs to one call. It prints lines for people immediately and records them. With `--json` it only records
them, and leaves out tables.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from testbed.commands.documents import UnfinishedOperation, describe_unfinished_operations

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from testbed.lab.model import Lab
    from testbed.lab.simulated.lifecycle import HostsChoice
    from testbed.operate.session import LabSession

DEFAULT_RUNS = Path("runs")


@dataclass
class CommandContext:
    """The surroundings of one call of a command."""

    lab_file: Path | None = None
    runs_dir: Path = DEFAULT_RUNS
    is_quiet: bool = False
    """Whether to print only the document, and no lines."""
    lines: list[str] = field(default_factory=list)
    """Lines for people so far."""
    stream: TextIO | None = None
    """Stream for the lines. None: standard output."""
    lab_files: tuple[Path, ...] = ()
    """Lab files of a command that takes several labs."""

    @cached_property
    def lab(self) -> Lab:
        """The lab that the lab file describes. Raises `LabFileError`."""
        from testbed.lab.inventory import load_lab

        assert self.lab_file is not None, "the command declares that it needs no lab"
        return load_lab(self.lab_file)

    @cached_property
    def running_lab(self) -> Lab:
        """The lab with the addresses at which it runs. Raises `LabFileError`, `LabStartError`."""
        from testbed.lab.simulated.lifecycle import find_running_lab

        return find_running_lab(self.lab)

    def say(self, *lines: str) -> None:
        """Print and record lines for people."""
        self.lines += lines
        for line in () if self.is_quiet else lines:
            print(line, file=self.stream or sys.stdout)

    def say_table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table, unless `is_quiet`. A column of numbers is aligned to the right."""
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

    def print_note(self, text: str) -> None:
        """Print a line on standard error immediately."""
        print(text, file=sys.stderr, flush=True)

    def confirm(self, question: str) -> bool:
        """Ask a question on standard error, and return whether the answer is yes. An empty answer is no.

        Any other answer repeats the question. Raises `KeyboardInterrupt` at the end of input.
        """
        while True:
            print(f"{question} [y/N]: ", end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            if not line:
                raise KeyboardInterrupt
            reply = line.strip().lower()
            if reply in ("", "n", "no", "y", "yes"):
                return reply in ("y", "yes")

    def find_unfinished_operations(self, lab: Lab | None = None) -> tuple[UnfinishedOperation, ...]:
        """Return the unfinished operations of a lab, or one entry with the error if the journal cannot be read.

        The default is the lab of this context.
        """
        from testbed.operate.unfinished import find_unfinished_or_error

        return describe_unfinished_operations(find_unfinished_or_error(self.runs_dir, lab or self.lab))

    def say_unfinished_operations(self, lab: Lab | None = None) -> tuple[UnfinishedOperation, ...]:
        """Print a line for each unfinished operation, and return them as `find_unfinished_operations` does."""
        operations = self.find_unfinished_operations(lab)
        self.say(*(operation.format_line() for operation in operations))
        return operations

    @contextmanager
    def open_session(
        self,
        lab: Lab,
        hosts: HostsChoice | None = None,
        *,
        writes_journal: bool = False,
        skip_unreachable: bool = False,
    ) -> Iterator[LabSession]:
        """Open the switches of a lab and, unless `hosts` is None or they are modelled, its hosts.

        With `writes_journal`, the session has a journal and may change the lab. With `skip_unreachable`, devices
        that do not answer are left out. Without it, they raise errors.
        """
        from testbed.lab.simulated.lifecycle import find_hosts_in_use
        from testbed.operate.session import open_lab

        are_modelled = hosts is None or find_hosts_in_use(lab, hosts) == "model"
        with ExitStack() as stack:
            journal = None
            if writes_journal:
                from testbed.operate.journal import open_journal  # imports SQLAlchemy: only if needed

                journal = stack.enter_context(open_journal(self.runs_dir))
            yield stack.enter_context(
                open_lab(lab, journal, model_hosts=are_modelled, skip_unreachable=skip_unreachable)
            )


def _is_number(cell: object) -> bool:
    try:
        float(str(cell))
    except ValueError:
        return False
    return True
