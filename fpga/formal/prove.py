"""Proofs of the properties of each module of a datapath, and how they fail where they do."""

from __future__ import annotations

import enum
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fpga.count_action.checks.warnings import contradictions
from fpga.count_action.model import Datapath
from fpga.formal import sby
from fpga.formal.claims import stated
from fpga.formal.properties import PROPERTIES, STATED, Property, properties_of, property_of
from fpga.formal.specification import Specification
from fpga.formal.waves import read_vcd, table
from fpga.hdl.tools import ToolTimeout

SHOWN = 8
"""Cycles of a counterexample that are shown, up to the one that fails."""


class Verdict(enum.Enum):
    """Result of the proof of one property of one module."""

    PROVEN = "proven"
    FAILED = "failed"
    """There is a counterexample that begins with a reset."""
    OPEN = "open"
    """Neither proven nor refuted: another property failed, and this one depends on what it says."""
    TIMED_OUT = "timed out"
    """The prover did not end in time: neither proven nor refuted."""
    VACUOUS = "vacuous"
    """Proven, because a count waits for a bit to be 1 and 0 at once: it says nothing."""
    NOT_APPLICABLE = "not applicable"
    """The module has no part that the property speaks of."""


@dataclass(frozen=True, slots=True)
class Result:
    """A property of a module: `part` is the count, output or target that fails, `cycle` the first bad one."""

    module: str
    property: str
    verdict: Verdict
    part: str = ""
    cycle: int | None = None


@dataclass(frozen=True, slots=True)
class Reached:
    """A fire, a stall or a commit that should be reached, and the part of the module that it belongs to."""

    module: str
    part: str
    what: str
    reached: bool


@dataclass(frozen=True, slots=True)
class Proof:
    """Everything that a proof of a datapath has shown.

    `counterexample` is a table of the cycles up to the first failure, and `trace` the same for a wave viewer (VCD).
    """

    datapath: str
    results: tuple[Result, ...]
    covered: tuple[Reached, ...]
    counterexample: tuple[str, ...] = ()
    trace: str = ""

    @property
    def ok(self) -> bool:
        """True if everything that applies is proven."""
        return all(each.verdict in {Verdict.PROVEN, Verdict.NOT_APPLICABLE} for each in self.results)

    def of(self, module: str, name: str) -> Result:
        """Return the result of the property `name` of a module. Raises KeyError."""
        for each in self.results:
            if (each.module, each.property) == (module, name):
                return each
        raise KeyError(f"nothing was proven about {name!r} of module {module!r}")


def prove(
    datapath: Datapath,
    module: str | None = None,
    *,
    cover: bool = True,
    depth: int = sby.DEPTH,
    allow_vacuous: bool = False,
    timeout_s: float = 300,
) -> Proof:
    """Prove the generated top of `datapath` against its model, by k-induction; with `module`, that one alone.

    The only assumption is a reset in the first cycle: inputs are free in every cycle. Takes a few seconds, longer with
    `depth`, the cycles in which counterexamples are looked for. With `allow_vacuous` a count that never counts is as
    good as any. Raises KeyError when there is no such module, ToolMissing and ToolFailed.
    """
    if module is not None:
        datapath.module(module)
    specification = Specification(datapath, module)
    proof = _prove_specification(specification, cover=cover, depth=depth, timeout_s=timeout_s)
    for claims in _claims_proven(datapath, module, depth, timeout_s):
        proof = replace(
            proof,
            results=(*proof.results, *claims.results),
            counterexample=proof.counterexample or claims.counterexample,
            trace=proof.trace or claims.trace,
        )
    return (
        proof if allow_vacuous else replace(proof, results=tuple(_without_vacuous(datapath, proof.results)))
    )


def _claims_proven(datapath: Datapath, module: str | None, depth: int, timeout_s: float) -> Iterator[Proof]:
    """Return the proofs of what the text states: what is not proven is left out, and the others are tried again.

    They are apart from the rest, which holds without what the text assumes.
    """
    left = stated(datapath, module)
    while left:
        specification = Specification(datapath, module, left)
        proof = _prove_specification(specification, cover=True, depth=depth, timeout_s=timeout_s)
        settled = tuple(each for each in proof.results if each.property == STATED)
        settled = settled or tuple(Result(*each[:1], STATED, Verdict.OPEN, each[1]) for each in sorted(left))
        yield replace(proof, results=settled)
        left = left - {(each.module, each.part) for each in settled}


def _without_vacuous(datapath: Datapath, results: Iterable[Result]) -> Iterator[Result]:
    """Return the results; of counts that can never count it is not proven when they fire."""
    for each in results:
        counts = datapath.module(each.module).counts
        idle = next((count.name for count in counts if contradictions(count)), "")
        vacuous = idle and each.property == "fires" and each.verdict is Verdict.PROVEN
        yield replace(each, verdict=Verdict.VACUOUS, part=idle) if vacuous else each


def _prove_specification(
    specification: Specification, *, cover: bool = True, depth: int = sby.DEPTH, timeout_s: float = 300
) -> Proof:
    """Prove what a specification says of its sources."""
    with tempfile.TemporaryDirectory(prefix="trace-") as folder:
        vcd = Path(folder) / "trace.vcd"
        sources = specification.sources()
        try:
            outcome = sby.run(
                sources, specification.top, cover=cover, vcd=vcd, depth=depth, timeout_s=timeout_s
            )
        except ToolTimeout:
            return Proof(specification.datapath.name, tuple(_timed_out(specification)), ())
        trace = vcd.read_text() if vcd.exists() else ""
    return Proof(
        datapath=specification.datapath.name,
        results=tuple(_results(specification, outcome)),
        covered=tuple(_covered(specification, outcome)),
        counterexample=tuple(_counterexample(specification, outcome, trace)),
        trace=trace,
    )


def _timed_out(specification: Specification) -> Iterator[Result]:
    for each in _results(specification, sby.NOTHING):
        open_ = each.verdict is Verdict.OPEN
        yield replace(each, verdict=Verdict.TIMED_OUT) if open_ else each
    for check in specification.checks.values():
        if check.block == "count_action_claim":
            yield Result(check.module, STATED, Verdict.TIMED_OUT, check.part)


def _results(specification: Specification, outcome: sby.SbyResult) -> Iterator[Result]:
    """Return a row for every property of every module; what is said of all targets is said of every module."""
    modules = (
        [specification.only] if specification.only else [each.name for each in specification.datapath.modules]
    )
    for module in modules:
        applies = {
            fact.name
            for check in specification.checks.values()
            if check.module in {module, ""}
            for fact in properties_of(check.block)
        }
        for fact in PROPERTIES:
            if fact.name == STATED:
                yield from _stated(specification, outcome, module)
            elif fact.name in applies:
                yield _result(specification, outcome, module, fact)
            else:
                yield Result(module, fact.name, Verdict.NOT_APPLICABLE)


def _stated(specification: Specification, outcome: sby.SbyResult, module: str) -> Iterator[Result]:
    """Return a row for each property that the text states and that is settled.

    It is proven of nothing where no run meets what the text assumes.
    """
    failed = {failure.name.partition(".")[0]: failure.cycle for failure in outcome.failures}
    unproven = {name.partition(".")[0] for name in outcome.open}
    for instance, check in specification.checks.items():
        if check.block != "count_action_claim" or check.module != module:
            continue
        if instance in failed:
            yield Result(module, STATED, Verdict.FAILED, check.part, failed[instance])
        elif outcome.proven:
            nothing = f"{instance}.looked_at" in outcome.unreached
            yield Result(module, STATED, Verdict.VACUOUS if nothing else Verdict.PROVEN, check.part)
        elif instance in unproven:
            yield Result(module, STATED, Verdict.OPEN, check.part)


def _result(specification: Specification, outcome: sby.SbyResult, module: str, fact: Property) -> Result:
    for failure in outcome.failures:
        instance, _, label = failure.name.partition(".")
        check = specification.checks[instance]
        if check.module in {module, ""} and property_of(f"{check.block}.{label}") is fact:
            return Result(module, fact.name, Verdict.FAILED, check.part, failure.cycle)
    return Result(module, fact.name, Verdict.PROVEN if outcome.proven else Verdict.OPEN)


def _covered(specification: Specification, outcome: sby.SbyResult) -> Iterator[Reached]:
    for names, reached in ((outcome.reached, True), (outcome.unreached, False)):
        for name in names:
            instance, _, what = name.partition(".")
            check = specification.checks[instance]
            yield Reached(check.module, check.part, what, reached)


def _counterexample(specification: Specification, outcome: sby.SbyResult, trace: str) -> Iterator[str]:
    if not trace or not outcome.failures:
        return
    ports = specification.meaning.ports
    names = ["rst_i", *(port.name for port in (*ports.inputs, *ports.outputs))]
    last = min(failure.cycle for failure in outcome.failures) + 1
    series = read_vcd(trace, names)
    shown = {name: values[max(0, last - SHOWN) : last] for name, values in series.items()}
    yield from table(shown, max(0, last - SHOWN), last)
