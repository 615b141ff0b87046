"""`testbed audit`: list who did what through the service, and check that the log was not changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from testbed.commands.context import CommandContext
from testbed.commands.declare import Command, option
from testbed.commands.documents import EXIT_CHANGES, EXIT_DONE, Document
from testbed.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class AuditLine:
    """A line of the audit log: who did what to which lab, why, with which plan and what outcome, and its hash."""

    number: int
    at: str
    who: str
    role: str
    action: str
    lab: str
    why: str
    plan: str
    outcome: str
    previous: str
    hash: str

    def format_line(self) -> str:
        """Return a line for people, with control characters escaped."""
        lab_text = f" on lab {self.lab}" if self.lab else ""
        reason_text = f": {self.why}" if self.why else ""
        plan_text = f" plan {self.plan[:12]}" if self.plan else ""
        author = f"{self.who} ({self.role})"
        line = f"{self.number} {self.at[:19]} {author}: {self.action}{lab_text}{plan_text}, {self.outcome}{reason_text}"
        return "".join(character if character.isprintable() else repr(character)[1:-1] for character in line)


@dataclass(frozen=True, kw_only=True)
class AuditList(Document):
    """The newest lines of the log, the oldest of them first."""

    entries: tuple[AuditLine, ...]


@dataclass(frozen=True, kw_only=True)
class AuditCheck(Document):
    """Result of a check of the log: number of lines, newest hash, and the first broken line with the reason."""

    whole: bool
    lines: int
    newest: str
    broken: int | None
    reason: str

    @property
    def exit_code(self) -> int:
        """2 if a line was changed or removed."""
        return EXIT_DONE if self.whole else EXIT_CHANGES

    def format_line(self) -> str:
        """Return a line for people."""
        if self.whole:
            return f"intact: {self.lines} lines, the newest {self.newest}"
        return f"broken at line {self.broken}: {self.reason}; the lines before it are intact"


@dataclass(frozen=True, kw_only=True)
class Audit(Command[AuditList | AuditCheck]):
    """`testbed audit`."""

    needs = "nothing"
    lane = "reading"
    role = "admin"
    needs_scope = "audit:read"
    readers = "admin"
    details = (
        "The check alone does not detect a log whose end was cut and whose count was changed: "
        "--expect HASH also searches it for a hash that you stored elsewhere."
    )
    verify: Annotated[
        bool, option("Check the whole log; exit code 2 names the first broken line.", "--verify")
    ] = False
    expect: Annotated[
        str, option("With --verify: the log must hold the line with this hash.", metavar="HASH")
    ] = ""
    last: Annotated[int, option("Show only the newest N lines.", metavar="N", least=1)] = 50

    def validate(self) -> None:
        """Raise `UsageError` for `--expect` without `--verify`."""
        super().validate()
        if self.expect and not self.verify:
            raise UsageError("--expect is given without --verify: pass both")

    def run(self, context: CommandContext) -> AuditList | AuditCheck:
        """List the lines, or check them."""
        from testbed.storage.address import get_database_address
        from testbed.storage.audit import read_audit, verify_audit_log

        address = get_database_address(context.runs_dir)
        if self.verify:
            check = verify_audit_log(address, self.expect)
            document = AuditCheck(
                whole=check.broken_line is None,
                lines=check.line_count,
                newest=check.newest_hash,
                broken=check.broken_line,
                reason=check.reason,
            )
            context.say(document.format_line())
            return document
        entries = tuple(AuditLine(**row) for row in read_audit(address, limit=self.last))
        context.say(
            *([entry.format_line() for entry in entries] or [f"the audit log of {context.runs_dir} is empty"])
        )
        return AuditList(entries=entries)
