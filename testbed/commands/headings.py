"""Keys of documents about a lab and its topology, and the lines for people that say the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.commands.documents import UnfinishedOperation

if TYPE_CHECKING:
    from testbed.lab.simulated.lifecycle import HostsInUse
    from testbed.operate.choice import MeantDesign


@dataclass(frozen=True, kw_only=True)
class LabKeys:
    """A lab, and how real it is: its `hosts` are `real`, of a `kernel`, or only a `model`."""

    lab: str
    simulated: bool
    hosts: str


@dataclass(frozen=True, kw_only=True)
class TopologyKeys:
    """A topology: its epoch with its state, the newest epoch of the lab, and operations that were left unfinished."""

    epoch: int | None
    epoch_state: str | None
    stored_epoch: int | None
    lab_file_changed: bool
    unfinished: tuple[UnfinishedOperation, ...]


@dataclass(frozen=True, kw_only=True)
class RunKeys:
    """A run on record."""

    run_id: str


def lab_keys(meant: MeantDesign, hosts: HostsInUse) -> dict[str, Any]:
    """Return the values of `LabKeys`, by field."""
    return {"lab": meant.lab.name, "simulated": meant.lab.simulated, "hosts": hosts}


def topology_keys(meant: MeantDesign) -> dict[str, Any]:
    """Return the values of `TopologyKeys`, by field."""
    unfinished = tuple(UnfinishedOperation(**one.json()) for one in meant.left)
    return meant.json() | {"unfinished": unfinished}
