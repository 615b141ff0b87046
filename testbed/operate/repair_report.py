"""A repair of a lab in words and in JSON: what is lost, what is done at once, which circuits change then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from testbed.design.model import Link
from testbed.design.repair import Detour
from testbed.lab.model import Lab
from testbed.operate.loss import Loss, Sight
from testbed.operate.model import Circuit
from testbed.operate.repair import LabRepair, not_in_force
from testbed.operate.repair_record import differences
from testbed.operate.session import Design


def describe_repair(lab: Lab, planned: LabRepair) -> Iterator[str]:
    """Yield what is lost and what would be done, as lines for people."""
    yield from describe_losses(lab, planned.record.losses)
    if planned.strange:
        yield not_in_force(planned.strange)
        return
    for detour in _detours(planned):
        way = ", ".join(map(lab.link_label, detour.path)) or "nothing: no way is left"
        yield f"at once: {lab.link_label(detour.lost)} over {way}"
    for verb, links in (("give up", planned.repair.remove), ("make", planned.repair.make)):
        for link in links:
            yield f"then: {verb} {lab.link_label(link)}"
    yield planned.repair.why
    held = planned.sight.held
    yield from _not_patched(lab, (one for one in planned.sight.unpatched if one.link in held))


def describe_losses(lab: Lab, losses: Iterable[Loss]) -> Iterator[str]:
    """Yield lost fibres as lines for people."""
    for loss in losses:
        doubt = "" if loss.sure else " (or the one at the other end)"
        yield f"lost: {_fibre(lab, loss)}{doubt}, for {lab.link_label(loss.link)}"


def losses_json(lab: Lab, losses: Iterable[Loss]) -> list[dict[str, Any]]:
    """Return lost fibres for programs."""
    return [
        {
            "nic": lab.nic_label(loss.nic),
            "fibre": loss.fibre,
            "link": lab.link_label(loss.link),
            "sure": loss.sure,
        }
        for loss in losses
    ]


def repair_json(lab: Lab, planned: LabRepair) -> dict[str, Any]:
    """Return the same for programs."""

    def labels(links: tuple[Link, ...]) -> list[str]:
        return [lab.link_label(link) for link in links]

    return {
        "lost": losses_json(lab, planned.record.losses),
        "detours": [
            {"link": lab.link_label(detour.lost), "path": labels(detour.path)} for detour in _detours(planned)
        ],
        "remove": labels(planned.repair.remove),
        "make": labels(planned.repair.make),
        "why": planned.repair.why,
    }


def describe_unpatched(lab: Lab, design: Design, sight: Sight) -> Iterator[str]:
    """Yield circuits that are missing or pass no light, where no fibre is lost; or that others stand in their place."""
    strange = differences(lab, design.wiring, sight.seen)
    if sight.unpatched and any(word.startswith("+") for word in strange):
        yield not_in_force(strange)
        return
    yield from _not_patched(lab, sight.unpatched)


def _not_patched(lab: Lab, circuits: Iterable[Circuit]) -> Iterator[str]:
    for circuit in circuits:
        pair = f"{circuit.input_port} -> {circuit.output_port}"
        yield f"not patched: {lab.link_label(circuit.link)}, {circuit.switch} passes no light {pair}: `testbed apply`"


def _detours(planned: LabRepair) -> tuple[Detour, ...]:
    """Return those that are new: none for what the circuits of a repair carry already."""
    if planned.is_repaired:
        return ()
    held = planned.sight.held
    return tuple(one for one in planned.repair.detours if one.lost in held or len(one.path) != 1)


def _fibre(lab: Lab, loss: Loss) -> str:
    nic = lab.nic(loss.nic)
    end = nic.transmit if loss.fibre == "transmit" else nic.receive
    return f"the {loss.fibre} fibre of {lab.nic_label(loss.nic)} at {end.switch}:{end.port}"
