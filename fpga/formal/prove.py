"""Proofs of the properties of each module of a datapath, and how they fail where they do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from fpga.count_action.checks.warnings import find_contradictions
from fpga.count_action.model import Datapath
from fpga.formal import sby
from fpga.formal.properties import STATED
from fpga.formal.search import Found, read_vcd, search, table
from fpga.formal.specification import Specification, claims_to_prove
from fpga.formal.verdicts import Result, Verdict, results

SHOWN = 8
"""Cycles of a counterexample that are shown, up to the one that fails."""


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
    proof = prove_specification(specification, cover=cover, depth=depth, timeout_s=timeout_s)
    claims = claims_to_prove(datapath, module)
    if claims:
        proof = _with_claims(proof, Specification(datapath, module, claims), depth, timeout_s)
    return (
        proof if allow_vacuous else replace(proof, results=tuple(_without_vacuous(datapath, proof.results)))
    )


def _with_claims(proof: Proof, specification: Specification, depth: int, timeout_s: float) -> Proof:
    """Return a proof with that of what the text states: apart, as the rest holds without what the text assumes."""
    claims = prove_specification(specification, depth=depth, timeout_s=timeout_s)
    return replace(
        proof,
        results=(*proof.results, *(each for each in claims.results if each.property == STATED)),
        counterexample=proof.counterexample or claims.counterexample,
        trace=proof.trace or claims.trace,
    )


def _without_vacuous(datapath: Datapath, results: Iterable[Result]) -> Iterator[Result]:
    """Return the results; of counts that can never count it is not proven when they fire."""
    for each in results:
        counts = datapath.module(each.module).counts
        idle = next((count.name for count in counts if find_contradictions(count)), "")
        vacuous = idle and each.property == "fires" and each.verdict is Verdict.PROVEN
        yield replace(each, verdict=Verdict.VACUOUS, part=idle) if vacuous else each


def prove_specification(
    specification: Specification, *, cover: bool = True, depth: int = sby.DEPTH, timeout_s: float = 300
) -> Proof:
    """Prove what a specification says of its design. Raises ToolMissing and ToolFailed."""
    found = search(specification, cover=cover, depth=depth, timeout_s=timeout_s)
    return Proof(
        datapath=specification.datapath.name,
        results=tuple(results(specification, found)),
        covered=tuple(_find_covered(specification, found)),
        counterexample=tuple(_counterexample(specification, found)),
        trace=found.trace,
    )


def _find_covered(specification: Specification, found: Found) -> Iterator[Reached]:
    for names, reached in ((found.reached, True), (found.unreached, False)):
        for name in names:
            instance, _, what = name.partition(".")
            check = specification.checks[instance]
            yield Reached(check.module, check.part, what, reached)


def _counterexample(specification: Specification, found: Found) -> Iterator[str]:
    if not found.trace:
        return
    ports = specification.meaning.ports
    names = ["rst_i", *(port.name for port in (*ports.inputs, *ports.outputs))]
    last = min(failure.cycle for failure in found.failures) + 1
    series = read_vcd(found.trace, names)
    shown = {name: values[max(0, last - SHOWN) : last] for name, values in series.items()}
    yield from table(shown, max(0, last - SHOWN), last)
