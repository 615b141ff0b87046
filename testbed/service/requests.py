"""Requests for runs: a model for each command, which is all that a body may say, and the arguments that it becomes.

Names of fields are those of the command's parameters. Files are given as text and written into the run's folder; a
request cannot name a file of the service's machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from testbed.design.topology.strides import Method
from testbed.service.access import Role

Hosts = Literal["auto", "kernel", "model"]
Line = Annotated[str, Field(max_length=400, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
"""Text without control characters."""
Interval = Annotated[str, Field(pattern=r"^\d{1,6}[smhd]$")]
Whole = Annotated[int, Field(ge=1, le=2**31 - 1)]


class Request(BaseModel):
    """Fields of every request: the lab, why it is asked for, the lease under which to move."""

    model_config = ConfigDict(extra="forbid")
    role: ClassVar[Role] = "operator"
    moves: ClassVar[bool] = False
    positional: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[Mapping[str, str]] = {}
    is_lab_last: ClassVar[bool] = False

    lab: Line
    why: Line = ""
    text: Annotated[bool, Field(description="Lines for people in place of one JSON document.")] = False

    def arguments(self, lab_file: Path, runs_dir: Path, folder: Path) -> list[str]:
        """Return the arguments of the command; files are written to `folder`."""
        options = [*self._options(folder), f"--runs-dir={runs_dir}"]
        named = [str(one) for name in self.positional for one in _values(getattr(self, name))]
        words = command_of(type(self)).split()
        ends = [*named, str(lab_file)] if self.is_lab_last else [str(lab_file), *named]
        return [*words, *options, *([] if self.text else ["--json"]), "--", *ends]

    def _options(self, folder: Path) -> Iterator[str]:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if name in _NOT_OPTIONS or name in self.positional or value in (None, False, "", []):
                continue
            option = self.options.get(name, f"--{name.replace('_', '-')}")
            if name in self.files:
                folder.mkdir(parents=True, exist_ok=True)
                path = folder / f"{name}.json"
                path.write_text(value, encoding="utf-8")
                value = path
            for one in _values(value):
                yield option if one is True else f"{option}={one}"


def _values(value: Any) -> list[Any]:
    """Return what was given as a list; nothing where nothing was."""
    return value if isinstance(value, list) else [] if value in (None, "") else [value]


_NOT_OPTIONS = frozenset({"command", "lab", "why", "text"})


class _Named(Request):
    """Options that name a topology."""

    options: ClassVar[Mapping[str, str]] = {"plan_file": "--plan"}
    files: ClassVar[tuple[str, ...]] = ("plan_file",)
    simplex: bool = False
    method: Method | None = None
    demand: list[Line] = []
    plan_file: str | None = None
    epoch: Whole | None = None


class _WithHosts(Request):
    """Option of commands that ask hosts."""

    hosts: Hosts = "auto"


class _Moving(Request):
    """Options of commands that move the lab."""

    moves: ClassVar[bool] = True
    lease: Line = ""
    really_move: Line | None = None


class Plan(_Named):
    """`testbed plan`: what would change."""

    command: Literal["plan"]
    take_over: bool = False
    patches: bool = False
    options: ClassVar[Mapping[str, str]] = {"plan_file": "--plan", "patches": "--patch-list"}


class Apply(_Named, _WithHosts, _Moving):
    """`testbed apply`: patch a topology, install routes, prove both."""

    files: ClassVar[tuple[str, ...]] = ("plan_file", "change")
    command: Literal["apply"]
    take_over: bool = False
    change: str | None = None
    expect: Line | None = None
    confirm_within: Interval | None = None


class Verify(_Named, _WithHosts):
    """`testbed verify`: compare the lab with the plan."""

    command: Literal["verify"]


class FollowPath(_Named, _WithHosts):
    """`testbed path`: follow a packet between two hosts."""

    command: Literal["path"]
    source: Line
    target: Line
    positional: ClassVar[tuple[str, ...]] = ("source", "target")


class Drift(_Named, _WithHosts):
    """`testbed drift`: read power and loss, and keep them."""

    command: Literal["drift"]


class Repair(_Named, _WithHosts, _Moving):
    """`testbed repair`: look for lost fibres; with `apply` do without them."""

    command: Literal["repair"]
    apply: bool = False


class Resume(_WithHosts, _Moving):
    """`testbed resume`: go on with an operation that ended too early."""

    command: Literal["resume"]
    operation: Line | None = None
    positional: ClassVar[tuple[str, ...]] = ("operation",)


class Rollback(_WithHosts, _Moving):
    """`testbed rollback`: go back to an earlier verified epoch."""

    command: Literal["rollback"]
    epoch: Whole | None = None
    take_over: bool = False
    positional: ClassVar[tuple[str, ...]] = ("epoch",)


class Confirm(Request):
    """`testbed confirm`: keep what was applied."""

    command: Literal["confirm"]


class History(Request):
    """`testbed history`: the epochs of the lab."""

    role: ClassVar[Role] = "viewer"
    command: Literal["history"]


class Journal(Request):
    """`testbed journal`: the operations of the lab."""

    role: ClassVar[Role] = "viewer"
    command: Literal["journal"]
    operation: Line | None = None
    last: Whole | None = None
    positional: ClassVar[tuple[str, ...]] = ("operation",)


class LeaseList(Request):
    """`testbed lease list`: the leases of the lab."""

    role: ClassVar[Role] = "viewer"
    command: Literal["lease list"]
    ended: bool = False


class LeaseRequest(Request):
    """`testbed lease request`: ask for parts of the lab."""

    command: Literal["lease request"]
    resources: list[Line] = []
    ttl: Interval | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    at: Line = ""
    wait: Annotated[float, Field(ge=0, le=3600)] = 0.0
    allow: list[Line] = []
    note: Line = ""
    positional: ClassVar[tuple[str, ...]] = ("resources",)


class LeaseExtend(Request):
    """`testbed lease extend`: let a lease last longer."""

    command: Literal["lease extend"]
    lease: Line
    ttl: Interval | None = None
    positional: ClassVar[tuple[str, ...]] = ("lease",)


class LeaseRelease(Request):
    """`testbed lease release`: give a lease back."""

    command: Literal["lease release"]
    lease: Line
    positional: ClassVar[tuple[str, ...]] = ("lease",)


class LeaseBreak(Request):
    """`testbed lease break`: take a lease from whoever holds it."""

    role: ClassVar[Role] = "admin"
    command: Literal["lease break"]
    lease: Line
    reason: Annotated[Line, Field(min_length=1)]
    positional: ClassVar[tuple[str, ...]] = ("lease",)


class Maintenance(Request):
    """`testbed maintenance`: stop all motion while hands are in the rack."""

    role: ClassVar[Role] = "developer"
    command: Literal["maintenance"]
    to: Literal["on", "off"]
    reason: Line = ""
    wait: Annotated[float, Field(ge=0, le=3600)] = 120.0
    positional: ClassVar[tuple[str, ...]] = ("to",)
    is_lab_last: ClassVar[bool] = True


REQUESTS: tuple[type[Request], ...] = (
    *(Plan, Apply, Verify, FollowPath, Drift, Repair, Resume, Rollback, Confirm, History, Journal),
    *(LeaseList, LeaseRequest, LeaseExtend, LeaseRelease, LeaseBreak, Maintenance),
)
"""All commands that can be asked for."""
_Operating = (
    Plan | Apply | Verify | FollowPath | Drift | Repair | Resume | Rollback | Confirm | History | Journal
)
_Leasing = LeaseList | LeaseRequest | LeaseExtend | LeaseRelease | LeaseBreak | Maintenance
AnyRequest = Annotated[_Operating | _Leasing, Field(discriminator="command")]
_ADAPTER: TypeAdapter[Any] = TypeAdapter(AnyRequest)


def command_of(request: type[Request]) -> str:
    """Return the words of the command that a model is for."""
    return str(request.model_fields["command"].annotation.__args__[0])  # type: ignore[union-attr]


MOVING = tuple(command_of(one) for one in REQUESTS if one.moves)
"""Commands that move the lab: they follow one another."""
LOOKING = tuple(command_of(one) for one in REQUESTS if not one.moves)


def parse_request(text: str | bytes) -> Request:
    """Return the request that a JSON document is. Raises `pydantic.ValidationError`."""
    request: Request = _ADAPTER.validate_json(text)
    return request
