"""Properties that a text states, and what it assumes of what comes from outside, in a proof (R21)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from fpga.count_action.actions.proof import Check
from fpga.count_action.model import Datapath
from fpga.formal.meaning import Meaning

ASSUMED = "assume"


def assumption_lines(meaning: Meaning) -> Iterator[str]:
    """Return what is assumed in every cycle but those of a reset."""
    for module in meaning.datapath.modules:
        for claim in module.claims:
            if claim.kind == ASSUMED:
                holds = meaning.formulas.text(claim.holds)
                yield f"always_comb if (begun_q && !rst_i) assume ({holds} != 0);"


def stated(datapath: Datapath, only: str | None) -> frozenset[tuple[str, str]]:
    """Return the properties that are to be proven: module and name."""
    modules = [module for module in datapath.modules if only in {None, module.name}]
    return frozenset((m.name, each.name) for m in modules for each in m.claims if each.kind != ASSUMED)


def claims_of(meaning: Meaning, chosen: Collection[tuple[str, str]]) -> Iterator[Check]:
    """Return the checks of what `always` and `never` state."""
    for module in meaning.datapath.modules:
        for claim in module.claims:
            if (module.name, claim.name) in chosen:
                relation = "==" if claim.kind == "never" else "!="
                ports = {
                    "rst_i": "rst_i",
                    "begun_i": "begun_q",
                    "holds_i": f"{meaning.formulas.text(claim.holds)} {relation} 0",
                }
                yield Check("count_action_claim", module.name, claim.name, {}, ports)
