"""Repairs that were begun, and whether one of them is what stands: its NICs are not to be used again.

A receive fibre whose circuit has been given up shows nowhere any more, so what was lost is kept on record. A record
counts only while the switches hold its links to the last one: `testbed apply` ends it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from ocs_drivers.model import Snapshot
from testbed.design.model import Link, Nic, Wiring
from testbed.lab.model import Lab
from testbed.operate.loss import Fibre, Loss
from testbed.operate.plan import circuits_of, own_ports, pair_label, port_owners


@dataclass(frozen=True, slots=True)
class RepairRecord:
    """Links of a topology, the fibres that were lost, and the links that the repair was to leave."""

    planned: frozenset[Link]
    losses: tuple[Loss, ...]
    links: frozenset[Link]

    def to_json(self, lab: Lab) -> dict[str, Any]:
        """Return what the run's record keeps: NICs and links as people name them."""
        return {
            "planned": sorted(map(lab.link_label, self.planned)),
            "losses": [
                {
                    "nic": lab.nic_label(loss.nic),
                    "fibre": loss.fibre,
                    "link": lab.link_label(loss.link),
                    "sure": loss.sure,
                }
                for loss in self.losses
            ],
            "links": sorted(map(lab.link_label, self.links)),
        }

    @classmethod
    def from_json(cls, lab: Lab, data: Mapping[str, Any]) -> RepairRecord | None:
        """Return what `to_json` made; None when it names hosts or NICs that this lab does not have."""
        nics = {lab.nic_label(nic): nic for nic in _nics(lab)}

        def link(label: str) -> Link:
            source, target = label.split(" -> ")
            return Link(nics[source], nics[target])

        try:
            losses = tuple(
                Loss(nics[loss["nic"]], cast("Fibre", loss["fibre"]), link(loss["link"]), loss["sure"])
                for loss in data["losses"]
            )
            return cls(frozenset(map(link, data["planned"])), losses, frozenset(map(link, data["links"])))
        except KeyError:
            return None

    def stands(self, lab: Lab, wiring: Wiring, seen: Mapping[str, Snapshot]) -> bool:
        """Return whether this is a repair of that wiring, and what the switches hold."""
        left = replace(wiring, links=tuple(self.links))
        return self.planned == frozenset(wiring.links) and not differences(lab, left, seen)


def _nics(lab: Lab) -> Iterator[Nic]:
    return (Nic(node, index) for node, host in enumerate(lab.hosts) for index in range(len(host.nics)))


def differences(lab: Lab, wiring: Wiring, seen: Mapping[str, Snapshot]) -> tuple[str, ...]:
    """Return what a wiring lacks (`-a/nic1 -> b/nic1`), and what else there is at ports of the lab's hosts (`+`)."""
    ours, owners = own_ports(lab), port_owners(lab)
    wanted = {(c.switch, c.input_port, c.output_port) for c in circuits_of(lab, wiring)}
    found = {
        (name, *pair)
        for name, snapshot in seen.items()
        for pair in snapshot.connections.pairs
        if any((name, port) in ours for port in pair)
    }

    def words(sign: str, circuits: set[tuple[str, int, int]]) -> list[str]:
        return [f"{sign}{pair_label(owners, name, (here, there))}" for name, here, there in sorted(circuits)]

    return (*words("-", wanted - found), *words("+", found - wanted))
