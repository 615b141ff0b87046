"""`testbed doctor`: check whether this machine can run a lab, with hints for what is missing."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.commands.context import CommandContext
from testbed.commands.declare import Command
from testbed.commands.documents import EXIT_DONE, EXIT_ERROR, Document


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check of the machine: its name, its result, and a hint if it failed."""

    name: str
    ok: bool
    found: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class DoctorDocument(Document):
    """The checks of a machine, and whether all of them passed."""

    ok: bool
    checks: tuple[Check, ...]

    @property
    def exit_code(self) -> int:
        """1 if a check failed."""
        return EXIT_DONE if self.ok else EXIT_ERROR


@dataclass(frozen=True, kw_only=True)
class Doctor(Command[DoctorDocument]):
    """`testbed doctor`."""

    needs = "lab if any"
    lab_help = "Also check this lab file."
    role = "developer"
    has_runs_dir = False

    def run(self, context: CommandContext) -> DoctorDocument:
        """Check the machine, and the lab file if there is one."""
        from testbed.lab.checkup import check_lab, check_machine

        results = [*check_machine(), *(check_lab(context.lab) if context.lab_file else ())]
        checks = tuple(
            Check(name=result.name, ok=result.ok, found=result.found, hint=result.hint) for result in results
        )
        for check in checks:
            hint = "" if check.ok else f"\n      {check.hint}"
            context.say(f"{'ok  ' if check.ok else 'BAD '}  {check.name}: {check.found}{hint}")
        return DoctorDocument(ok=all(check.ok for check in checks), checks=checks)
