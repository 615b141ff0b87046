"""Requests about what the service holds: stored runs, metrics, the audit log, its machine. No lab is named by most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from testbed.commands.declare import Lane, Role
from testbed.service.request import Line, Request, Whole

Statement = Annotated[str, Field(min_length=1, max_length=20_000, pattern=r"^[^\x00]*$")]


class _Stored(Request):
    """A request about everything that is stored; a token for some labs only is refused."""

    role: ClassVar[Role] = "viewer"
    lane: ClassVar[Lane] = "reading"
    lab: Line = ""
    names_lab_file: ClassVar[bool] = False


class _Table(_Stored):
    """Option of commands that print a table."""

    as_csv: bool = False
    options: ClassVar[Mapping[str, str]] = {"as_csv": "--csv"}


class ResultList(_Table):
    """`testbed runs`: the runs of measurements that are stored."""

    command: Literal["runs"]


class RunsQuery(_Table):
    """`testbed runs query`: ask them in SQL."""

    command: Literal["runs query"]
    statement: Statement
    positional: ClassVar[tuple[str, ...]] = ("statement",)


class RunsCompare(_Table):
    """`testbed runs compare`: what two of them measured, row by row."""

    command: Literal["runs compare"]
    a: Line
    b: Line
    positional: ClassVar[tuple[str, ...]] = ("a", "b")


class RunsTrend(_Stored):
    """`testbed runs trend`: changes of level between them; of one lab if named."""

    command: Literal["runs trend"]
    quantity: Literal["bandwidth", "power"] | None = None
    every_size: bool = False
    rate: Annotated[float, Field(ge=0.0001, le=0.5)] = 0.05
    options: ClassVar[Mapping[str, str]] = {"lab": "--lab"}


class Report(_Stored):
    """`testbed report`: the report of one of them."""

    command: Literal["report"]
    run_id: Line
    out: bool = False
    positional: ClassVar[tuple[str, ...]] = ("run_id",)
    writes: ClassVar[Mapping[str, str]] = {"out": "report.html"}


class Metrics(_Stored):
    """`testbed metrics`: figures of the database, and of the switches of these labs."""

    lane: ClassVar[Lane] = "looking"
    command: Literal["metrics"]
    labs: list[Line] = Field(default=[])
    names_lab_file: ClassVar[bool] = True

    def labs_meant(self) -> tuple[str, ...]:
        """Return the labs whose switches are read."""
        return tuple(self.labs)


class AuditLines(_Stored):
    """`testbed audit`: who did what through the service."""

    role: ClassVar[Role] = "admin"
    needs_scope: ClassVar[str] = "audit:read"
    readers: ClassVar[Role] = "admin"
    command: Literal["audit"]
    verify: bool = False
    expect: Line = ""
    last: Whole | None = None
