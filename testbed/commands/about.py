"""Beginning of what is said about a lab: which lab, how real it is, and which topology is meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lightbed.wording import count_noun
from testbed.commands.documents import Document, Finding, UnfinishedOperation, describe_unfinished

if TYPE_CHECKING:
    from testbed.lab.simulated.lifecycle import HostsChoice
    from testbed.operate.choice import DesignChoice
    from testbed.operate.model import LinkFinding


@dataclass(frozen=True, kw_only=True)
class OfEpoch(Document):
    """Keys of documents about a topology: its epoch with its state, the newest epoch of the lab, unfinished work."""

    epoch: int | None
    epoch_state: str | None
    stored_epoch: int | None
    lab_file_changed: bool
    unfinished: tuple[UnfinishedOperation, ...]


@dataclass(frozen=True, kw_only=True)
class OfLab(OfEpoch):
    """The same of a lab."""

    lab: str
    simulated: bool


@dataclass(frozen=True, kw_only=True)
class OfHosts(OfLab):
    """First keys of documents about a lab and its hosts: `real`, or `kernel` or `model` for simulated ones."""

    hosts: str


def describe_epoch(meant: DesignChoice) -> dict[str, Any]:
    """Return the fields of `OfEpoch`."""
    return {
        **meant.json(),
        "unfinished": describe_unfinished(meant.left),
    }


def describe_lab(meant: DesignChoice) -> dict[str, Any]:
    """Return the fields of `OfLab`."""
    return {"lab": meant.lab.name, "simulated": meant.lab.simulated, **describe_epoch(meant)}


def describe_hosts(meant: DesignChoice, hosts: HostsChoice = "auto") -> dict[str, Any]:
    """Return the fields of `OfHosts`."""
    from testbed.lab.simulated.lifecycle import hosts_of

    return {**describe_lab(meant), "hosts": hosts_of(meant.lab, hosts)}


def heading_lines(meant: DesignChoice, hosts: HostsChoice = "auto") -> list[str]:
    """Return the line that says what is looked at, and what must be known of it."""
    from testbed.design.topology.circulants import as_json as topology_json
    from testbed.lab.simulated.lifecycle import hosts_of

    lab, topology = meant.lab, topology_json(meant.design.topology)
    kind = "one-way link" if topology["simplex"] else "link"
    only = f", only {', '.join(host.name for host in lab.hosts)}" if lab.others else ""
    first = (
        f"{'SIMULATED ' if lab.simulated else ''}lab {lab.name}{only}: strides "
        f"{', '.join(map(str, topology['strides']))}, {count_noun(len(topology['links']), kind)}, "
        f"diameter {topology['diameter']}{', hosts only modelled' if hosts_of(lab, hosts) == 'model' else ''}"
    )
    return [f"{first}; {meant.heading()}", *meant.lines()]


def describe_findings(
    findings: Iterable[LinkFinding], meant: DesignChoice | None = None
) -> tuple[Finding, ...]:
    """Return findings for a document; with a design their advice to apply names it."""
    rows: Sequence[dict[str, Any]] = (
        meant.findings_json(findings) if meant else [each.as_json() for each in findings]
    )
    return tuple(Finding(**row) for row in rows)
