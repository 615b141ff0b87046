"""Keys and lines that every document about a lab starts with: its name, whether it is simulated, its topology."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lightbed.wording import format_count
from testbed.commands.documents import Document, Finding, UnfinishedOperation, describe_unfinished_operations

if TYPE_CHECKING:
    from testbed.lab.simulated.lifecycle import HostsChoice
    from testbed.operate.choice import DesignChoice
    from testbed.operate.model import LinkFinding


@dataclass(frozen=True, kw_only=True)
class EpochFields(Document):
    """Keys of documents about a topology: its epoch and state, the lab's newest epoch, and unfinished operations."""

    epoch: int | None
    epoch_state: str | None
    stored_epoch: int | None
    lab_file_changed: bool
    unfinished: tuple[UnfinishedOperation, ...]


@dataclass(frozen=True, kw_only=True)
class LabFields(EpochFields):
    """Keys of documents about a topology of a lab."""

    lab: str
    simulated: bool


@dataclass(frozen=True, kw_only=True)
class HostsFields(LabFields):
    """Keys of documents about a lab and its hosts. `hosts` is `real`, `kernel` or `model`."""

    hosts: str


def describe_epoch(choice: DesignChoice) -> dict[str, Any]:
    """Return the fields of `EpochFields`."""
    return {
        **choice.json(),
        "unfinished": describe_unfinished_operations(choice.unfinished),
    }


def describe_lab(choice: DesignChoice) -> dict[str, Any]:
    """Return the fields of `LabFields`."""
    return {"lab": choice.lab.name, "simulated": choice.lab.simulated, **describe_epoch(choice)}


def describe_hosts(choice: DesignChoice, hosts: HostsChoice = "auto") -> dict[str, Any]:
    """Return the fields of `HostsFields`."""
    from testbed.lab.simulated.lifecycle import find_hosts_in_use

    return {**describe_lab(choice), "hosts": find_hosts_in_use(choice.lab, hosts)}


def make_heading_lines(choice: DesignChoice, hosts: HostsChoice = "auto") -> list[str]:
    """Return a line with the lab and its topology, then the notes of the choice."""
    from testbed.design.topology.circulants import render_topology as topology_json
    from testbed.lab.simulated.lifecycle import find_hosts_in_use

    lab, topology = choice.lab, topology_json(choice.design.topology)
    link_kind = "one-way link" if topology["simplex"] else "link"
    hosts_text = f", only {', '.join(host.name for host in lab.hosts)}" if lab.other_hosts else ""
    title = (
        f"{'SIMULATED ' if lab.simulated else ''}lab {lab.name}{hosts_text}: strides "
        f"{', '.join(map(str, topology['strides']))}, {format_count(len(topology['links']), link_kind)}, "
        f"diameter {topology['diameter']}{', hosts only modelled' if find_hosts_in_use(lab, hosts) == 'model' else ''}"
    )
    return [f"{title}; {choice.format_heading()}", *choice.format_warnings()]


def describe_findings(
    findings: Iterable[LinkFinding], choice: DesignChoice | None = None
) -> tuple[Finding, ...]:
    """Return findings for a document. With `choice`, hints to run `testbed apply` name its topology."""
    rows: Sequence[dict[str, Any]] = (
        choice.make_findings_json(findings) if choice else [finding.as_json() for finding in findings]
    )
    return tuple(Finding(**row) for row in rows)
