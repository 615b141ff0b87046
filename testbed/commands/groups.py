"""Options that several commands share, as base classes of the declarations."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from testbed.commands.declare import Command, Lane, TextConverter, input_file_option, option
from testbed.design.topology.strides import Method
from testbed.errors import UsageError
from testbed.operate.named_topology import NamedTopology

HostsChoice = Literal["auto", "kernel", "model"]
_SECONDS_BY_UNIT = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_interval(text: str) -> float:
    """Return the seconds of an interval such as `30s`, `5m`, `1h`, `2d`. Raises `UsageError`.

    >>> parse_interval("5m")
    300.0
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if not match or not float(match[1]):
        raise UsageError(f"{text!r} is not an interval (examples: 30s, 5m, 1h)")
    return float(match[1]) * _SECONDS_BY_UNIT[match[2]]


INTERVAL_CONVERTER = TextConverter(
    parse_interval, lambda seconds: f"{max(1, round(seconds))}s", r"^\d{1,6}[smhd]$"
)
"""Seconds, written as `30s`, `5m`, `1h` or `2d`."""

RATE_OPTION = option(
    "Fixed rate of a simulated lab's links, instead of the lab file's or the machine's.",
    metavar="RATE",
    least=0.1,
)
SIMPLEX_OPTION = option("Use one-way links: each ring has only one direction.", "--simplex")
DEMAND_OPTION = option(
    "AllReduce demand: groups of NODES nodes reduce BYTES each (repeatable).", metavar="NODES:BYTES"
)
HOSTS_OPTION = option("Use only these hosts of the lab, as nodes 0, 1, 2.", metavar="A,B,C")
DEADLINE_OPTION = option(
    "Time after which the hosts end a measurement.", "--deadline", metavar="SECONDS", least=1, most=86400
)
SIZES_OPTION = option("Message sizes, doubling: 1KiB:8MiB.", metavar="MIN:MAX")
TAKE_OVER_OPTION = option(
    "Circuits of other hosts that connect to the plan's hosts may be removed.", "--take-over"
)


@dataclass(frozen=True, kw_only=True)
class TopologyCommand(Command[Any]):
    """Options that name a topology. The default is the stored topology."""

    simplex: Annotated[bool, SIMPLEX_OPTION] = False
    method: Annotated[
        Method | None,
        option("Method that chooses ring strides: 'geometric', unless --plan or --epoch sets the topology."),
    ] = None
    demand: Annotated[tuple[str, ...], DEMAND_OPTION] = ()
    hosts_of: Annotated[str, HOSTS_OPTION] = ""
    plan_file: Annotated[
        Path | None, input_file_option("Plan of `testbed optimise`: its topology and its hosts.", "--plan")
    ] = None
    epoch: Annotated[
        int | None,
        option("Use the topology of this epoch of the lab.", metavar="N", least=1),
    ] = None

    @property
    def named_topology(self) -> NamedTopology:
        """The topology that the options name. Raises `PlanFileError` and `IntentError`."""
        hosts = tuple(self.hosts_of.split(",")) if self.hosts_of else ()
        return NamedTopology(self.simplex, self.method, self.demand, self.plan_file, self.epoch, hosts)

    def validate(self) -> None:
        """Raise `PlanFileError` or `IntentError` for options that exclude each other."""
        super().validate()
        self.named_topology  # noqa: B018  its constructor checks the options


@dataclass(frozen=True, kw_only=True)
class HostsCommand(Command[Any]):
    """Option of commands that connect to hosts."""

    hosts: Annotated[
        HostsChoice, option("Simulated hosts: kernel namespaces (needs root) or a flow model of them.")
    ] = "auto"


@dataclass(frozen=True, kw_only=True)
class TableCommand(Command[Any]):
    """Option of commands whose document is a `TableDocument`."""

    as_csv: Annotated[
        bool, option("Print a header and one line per row, with the columns of --json.", "--csv")
    ] = False


@dataclass(frozen=True, kw_only=True)
class MovingCommand(Command[Any]):
    """Options of commands that change a lab. `--really-move` must name a real lab. A lease is needed."""

    lane: ClassVar[Lane] = "moving"
    really_move: Annotated[
        str | None, option("Name of the lab; required to change a real one.", metavar="NAME")
    ] = None
