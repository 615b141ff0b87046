"""A request for a run as a model, and the arguments of the command that it becomes.

Names of fields are those of the command's parameters. Files are given as text and written into the run's folder; a
request cannot name a file of the service's machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

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
            if name in _NOT_OPTIONS or name in self.positional or not (_values(value) and value is not False):
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


def command_of(request: type[Request]) -> str:
    """Return the words of the command that a model is for."""
    return str(request.model_fields["command"].annotation.__args__[0])  # type: ignore[union-attr]
