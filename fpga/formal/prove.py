"""Proofs of the properties of each module of a datapath, with counterexamples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from fpga.count_action.checks.warnings import find_contradictions
from fpga.count_action.model import Datapath
from fpga.formal import sby
from fpga.formal.properties import CLAIM_PROPERTY
from fpga.formal.search import BUDGET_S, Findings, format_table, read_vcd, search
from fpga.formal.specification import Specification, select_claims
from fpga.formal.verdicts import Result, Verdict, judge_properties

MAX_TABLE_CYCLES = 8
"""Largest number of cycles in the table of a counterexample, up to and including the failing cycle."""


@dataclass(frozen=True, slots=True)
class CoverResult:
    """A cover statement (a fire, a stall or a commit) of a part of a module, and whether it was reached."""

    module: str
    part_name: str
    statement: str
    is_reached: bool


@dataclass(frozen=True, slots=True)
class Proof:
    """Result of the proof of a datapath.

    `counterexample` holds the lines of a table of the last cycles up to the first failure, `vcd_text` the whole run as
    VCD text.
    """

    datapath: str
    results: tuple[Result, ...]
    cover_results: tuple[CoverResult, ...]
    counterexample: tuple[str, ...] = ()
    vcd_text: str = ""

    @property
    def ok(self) -> bool:
        """True if every applicable property is proven."""
        return all(result.verdict in {Verdict.PROVEN, Verdict.NOT_APPLICABLE} for result in self.results)

    def find_result(self, module: str, name: str) -> Result:
        """Return the result of the property `name` of a module. Raise KeyError if there is none."""
        for result in self.results:
            if (result.module, result.property) == (module, name):
                return result
        raise KeyError(f"nothing was proven about {name!r} of module {module!r}")


def prove(
    datapath: Datapath,
    module: str | None = None,
    *,
    include_cover: bool = True,
    depth: int = sby.DEPTH_CYCLES,
    allow_vacuous: bool = False,
    budget_s: float = BUDGET_S,
) -> Proof:
    """Prove the generated top of `datapath` against its model by k-induction; with `module`, only that module.

    The only assumption is a reset in the first cycle; inputs may have any value. Claims are an exception: their
    proof also uses the assumptions in the text of the datapath. `depth` is the number of cycles that are searched for
    counterexamples. A proof takes a few seconds, and longer with a larger `depth`. If it needs more than `budget_s` of
    processor time for each property, the properties are TIMED_OUT. Unless `allow_vacuous` is true, the property `fires`
    of a module becomes VACUOUS if a count of the module can never count. Raise
    KeyError if there is no such module, ToolMissing or ToolFailed.
    """
    if module is not None:
        datapath.module(module)
    specification = Specification(datapath, module)
    proof = prove_specification(specification, include_cover=include_cover, depth=depth, budget_s=budget_s)
    claims = select_claims(datapath, module)
    if claims:
        proof = _add_claims(proof, Specification(datapath, module, claims), depth, budget_s)
    return proof if allow_vacuous else replace(proof, results=tuple(_mark_vacuous(datapath, proof.results)))


def _add_claims(proof: Proof, specification: Specification, depth: int, budget_s: float) -> Proof:
    """Return `proof` with the results of the claims, which are proven apart: only claims may use the assumptions."""
    claim_proof = prove_specification(specification, depth=depth, budget_s=budget_s)
    return replace(
        proof,
        results=(
            *proof.results,
            *(result for result in claim_proof.results if result.property == CLAIM_PROPERTY),
        ),
        counterexample=proof.counterexample or claim_proof.counterexample,
        vcd_text=proof.vcd_text or claim_proof.vcd_text,
    )


def _mark_vacuous(datapath: Datapath, results: Iterable[Result]) -> Iterator[Result]:
    """Yield the results; `fires` becomes VACUOUS in modules with a count that can never count."""
    for result in results:
        counts = datapath.module(result.module).counts
        idle_count_name = next((count.name for count in counts if find_contradictions(count)), "")
        is_vacuous = idle_count_name and result.property == "fires" and result.verdict is Verdict.PROVEN
        yield replace(result, verdict=Verdict.VACUOUS, part_name=idle_count_name) if is_vacuous else result


def prove_specification(
    specification: Specification,
    *,
    include_cover: bool = True,
    depth: int = sby.DEPTH_CYCLES,
    budget_s: float = BUDGET_S,
) -> Proof:
    """Prove a specification. Raise ToolMissing or ToolFailed."""
    findings = search(specification, include_cover=include_cover, depth=depth, budget_s=budget_s)
    return Proof(
        datapath=specification.datapath.name,
        results=tuple(judge_properties(specification, findings)),
        cover_results=tuple(_list_cover_results(specification, findings)),
        counterexample=tuple(_tabulate_counterexample(specification, findings)),
        vcd_text=findings.vcd_text,
    )


def _list_cover_results(specification: Specification, findings: Findings) -> Iterator[CoverResult]:
    for names, is_reached in ((findings.reached_covers, True), (findings.unreached_covers, False)):
        for name in names:
            instance, _, statement = name.partition(".")
            check = specification.checks[instance]
            yield CoverResult(check.module, check.part_name, statement, is_reached)


def _tabulate_counterexample(specification: Specification, findings: Findings) -> Iterator[str]:
    if not findings.vcd_text:
        return
    ports = specification.expressions.ports
    names = ["rst_i", *(port.name for port in (*ports.inputs, *ports.outputs))]
    end_cycle = min(failure.cycle for failure in findings.failures) + 1
    series = read_vcd(findings.vcd_text, names)
    excerpt = {
        name: values[max(0, end_cycle - MAX_TABLE_CYCLES) : end_cycle] for name, values in series.items()
    }
    yield from format_table(excerpt, max(0, end_cycle - MAX_TABLE_CYCLES), end_cycle)
