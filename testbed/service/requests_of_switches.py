"""Requests of `testbed switch ADDRESS ...`: one switch of a lab of the service, by its name there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from testbed.service.request import Line, Request, command_of
from testbed.service_errors import InvalidRequest

if TYPE_CHECKING:
    from testbed.lab.model import Lab

Seconds = Annotated[float, Field(ge=0.1, le=86400)]
PairsText = Annotated[str, Field(max_length=1_000_000)]


class _OfSwitch(Request):
    """Options of every such command: which switch of the lab, and how long to wait for it."""

    switch: Line
    timeout_s: Seconds | None = None
    answer_s: Seconds | None = None
    names_lab_file: ClassVar[bool] = False
    has_runs_dir: ClassVar[bool] = False
    options: ClassVar[Mapping[str, str]] = {"timeout_s": "--timeout", "answer_s": "--timeout-each"}

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
        group, command = command_of(type(self)).split()
        return [group, lab.switch(self.switch).address, command]


class SwitchIdentity(_OfSwitch):
    """`testbed switch ADDRESS identity`: who answers, and what it can do."""

    command: Literal["switch identity"]


class SwitchPorts(_OfSwitch):
    """`testbed switch ADDRESS ports`: all ports."""

    command: Literal["switch ports"]


class SwitchRead(_OfSwitch):
    """`testbed switch ADDRESS read`: what is connected."""

    command: Literal["switch read"]


class SwitchPower(_OfSwitch):
    """`testbed switch ADDRESS power`: optical power at ports."""

    command: Literal["switch power"]
    named: list[Line] = Field(default=[])
    positional: ClassVar[tuple[str, ...]] = ("named",)


class _Changing(_OfSwitch):
    """Options of commands that change the switch."""

    moves: ClassVar[bool] = True
    has_runs_dir: ClassVar[bool] = True
    yes: bool = False
    lease: Line = ""


class SwitchConnect(_Changing):
    """`testbed switch ADDRESS connect`: make circuits."""

    command: Literal["switch connect"]
    pairs: Annotated[list[Line], Field(min_length=1)]
    replace: bool = False
    positional: ClassVar[tuple[str, ...]] = ("pairs",)


class SwitchDisconnect(_Changing):
    """`testbed switch ADDRESS disconnect`: take circuits down."""

    command: Literal["switch disconnect"]
    inputs: Annotated[list[Line], Field(min_length=1)]
    positional: ClassVar[tuple[str, ...]] = ("inputs",)


class SwitchApply(_Changing):
    """`testbed switch ADDRESS apply`: hold these circuits and no others."""

    command: Literal["switch apply"]
    pairs: list[Line] = Field(default=[])
    file: PairsText | None = None
    scope: Line | None = None
    expect: Line | None = None
    require_light: bool = False
    empty: bool = False
    dry_run: bool = False
    files: ClassVar[tuple[str, ...]] = ("file",)
    positional: ClassVar[tuple[str, ...]] = ("pairs",)


class SwitchShutter(_Changing):
    """`testbed switch ADDRESS shutter`: open or close shutters."""

    command: Literal["switch shutter"]
    what: Line
    named: Annotated[list[Line], Field(min_length=1)]
    positional: ClassVar[tuple[str, ...]] = ("what", "named")


class SwitchHome(_Changing):
    """`testbed switch ADDRESS home`: bring it into its state of rest."""

    command: Literal["switch home"]
