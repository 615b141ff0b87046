"""A request for a run as a model, and the arguments of the command that it becomes.

Names of fields are those of the command's parameters. Files are given as text and written into the run's folder, and
files that a command writes are written there: a request cannot name a file of the service's machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from testbed.commands.declare import Lane, Role
from testbed.service_errors import InvalidRequest

if TYPE_CHECKING:
    from testbed.lab.model import Lab

Hosts = Literal["auto", "kernel", "model"]
Line = Annotated[str, Field(max_length=400, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
"""Text without control characters."""
Interval = Annotated[str, Field(pattern=r"^\d{1,6}[smhd]$")]
Whole = Annotated[int, Field(ge=1, le=2**31 - 1)]


class Request(BaseModel):
    """Fields of every request: the lab, why it is asked for, the lease under which to move.

    `role` is the lowest that may ask, with a token of the scope `needs_scope`; `readers` are those who see what came
    of it. Runs of one `lane` share its room, see `workers`. `files` are fields whose text the command reads from a
    file; `writes` names, by field, a file that it writes.
    """

    model_config = ConfigDict(extra="forbid")
    role: ClassVar[Role] = "operator"
    needs_scope: ClassVar[str] = "runs:write"
    readers: ClassVar[Role] = "viewer"
    lane: ClassVar[Lane] = "looking"
    positional: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[str, ...]] = ()
    writes: ClassVar[Mapping[str, str]] = {}
    options: ClassVar[Mapping[str, str]] = {}
    is_lab_last: ClassVar[bool] = False
    names_lab_file: ClassVar[bool] = True
    has_runs_dir: ClassVar[bool] = True

    lab: Annotated[Line, Field(min_length=1)]
    why: Line = ""
    text: Annotated[bool, Field(description="Lines for people in place of one JSON document.")] = False

    @model_validator(mode="before")
    @classmethod
    def _leave_out_null(cls, body: Any) -> Any:
        """Return a body without fields that are null: these have their defaults, as if they were not there."""
        if not isinstance(body, dict):
            return body
        return {
            name: value for name, value in body.items() if value is not None or name not in cls.model_fields
        }

    def labs_meant(self) -> tuple[str, ...]:
        """Return the labs that it is about; none for what is about all that the service holds."""
        if "labs" in type(self).model_fields:
            return tuple(vars(self)["labs"])
        return (self.lab,) if self.lab else ()

    def check(self, lab: Lab) -> None:
        """Raise `InvalidRequest` for what is about other devices than those of its lab."""

    def arguments(self, lab_files: Mapping[str, Path], runs_dir: Path, folder: Path) -> list[str]:
        """Return the arguments of the command; files are written to `folder`."""
        given = {name: self._values(name, folder) for name in type(self).model_fields}
        named = [str(one) for name in self.positional for one in given[name]]
        labs = [str(lab_files[name]) for name in self.labs_meant() if self.names_lab_file]
        ends = [*named, *labs] if self.is_lab_last else [*labs, *named]
        options = [*self._options(given), *([f"--runs-dir={runs_dir}"] if self.has_runs_dir else [])]
        return [*self.words(lab_files), *options, *([] if self.text else ["--json"]), "--", *ends]

    def words(self, lab_files: Mapping[str, Path]) -> list[str]:
        """Return the words with which the command begins."""
        return command_of(type(self)).split()

    def _options(self, given: Mapping[str, list[Any]]) -> Iterator[str]:
        for name, values in given.items():
            if name in self.positional or (name in _NOT_OPTIONS and name not in self.options):
                continue
            option = self.options.get(name, f"--{name.replace('_', '-')}")
            yield from (option if one is True else f"{option}={one}" for one in values)

    def _values(self, name: str, folder: Path) -> list[Any]:
        """Return what was given for a field as a list: the path of a file; nothing where nothing was."""
        value = getattr(self, name)
        if value is None or value is False or value == "":
            return []
        if name in self.writes:
            (folder / self.writes[name]).unlink(missing_ok=True)  # of an attempt before this one
            return [folder / self.writes[name]]
        if name in self.files:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{name}.json"
            path.write_text(value, encoding="utf-8")
            return [path]
        return value if isinstance(value, list) else [value]


class SwitchRequest(Request):
    """Request of a command of one switch of a lab: by its name there, not by an address."""

    switch: Line

    def check(self, lab: Lab) -> None:
        """Raise `InvalidRequest` unless the lab has this switch."""
        names = [one.name for one in lab.switches]
        if self.switch not in names:
            raise InvalidRequest(f"lab {lab.name!r} has no switch {self.switch!r}; it has {', '.join(names)}")

    def words(self, lab_files: Mapping[str, Path]) -> list[str]:
        """Return the words with which the command begins: the address is that of the lab as it runs."""
        from testbed.lab.inventory import load_lab
        from testbed.lab.simulated.lifecycle import find_running

        lab = find_running(load_lab(lab_files[self.lab]))
        group, command = super().words(lab_files)
        return [group, lab.switch(self.switch).address, command]


_NOT_OPTIONS = frozenset({"command", "if_match", "lab", "why", "text", "labs", "switch"})


def command_of(request: type[Request]) -> str:
    """Return the words of the command that a model is for."""
    return str(request.model_fields["command"].annotation.__args__[0])  # type: ignore[union-attr]
