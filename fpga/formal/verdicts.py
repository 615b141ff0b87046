"""Verdicts about the properties of each module, made of what a search has found."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fpga.formal import sby
from fpga.formal.properties import PROPERTIES, STATED, properties_of
from fpga.formal.replay import Difference, causes, part_of, replay, target_differences
from fpga.formal.search import Found, read_vcd, simulate_differences
from fpga.formal.specification import Specification
from fpga.formal.subjects import subjects, targets_check


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
    TESTED = "tested"
    """Simulated with random stimulus, and nothing was found; not proven."""
    NOT_APPLICABLE = "not applicable"
    """The module has no part that the property speaks of."""


@dataclass(frozen=True, slots=True)
class Result:
    """A property of a module: `part` is the count, output or target that fails, `cycle` the first bad one.

    `element` is what shows it: a bit, a number or a sample, which is `seen` where it should be `expected`.
    """

    module: str
    property: str
    verdict: Verdict
    part: str = ""
    cycle: int | None = None
    element: str = ""
    expected: int | None = None
    seen: int | None = None


def results(specification: Specification, found: Found) -> Iterator[Result]:
    """Return a row for every property of every module; what is said of all targets is said of every module."""
    modules = (
        [specification.only] if specification.only else [each.name for each in specification.datapath.modules]
    )
    traces = _Traces(specification)
    for module in modules:
        applies = {
            fact.name
            for check in specification.checks.values()
            if check.module in {module, ""}
            for fact in properties_of(check.block)
        }
        for fact in PROPERTIES:
            if fact.name == STATED:
                yield from _judge_stated(specification, found, module)
            elif fact.name in applies:
                yield _result(specification, found, traces, module, fact.name)
            else:
                yield Result(module, fact.name, Verdict.NOT_APPLICABLE)


def _judge_stated(specification: Specification, found: Found, module: str) -> Iterator[Result]:
    """Return a row for each property that the text states; where no run meets what it assumes, nothing is proven."""
    failed = {failure.name.partition(".")[0]: failure.cycle for failure in found.failures}
    undecided = {name.partition(".")[0] for name in found.open}
    for instance, check in specification.checks.items():
        if check.block != "count_action_claim" or check.module != module:
            continue
        if instance in failed:
            verdict = Verdict.FAILED
        elif found.timed_out:
            verdict = Verdict.TIMED_OUT
        elif instance in undecided or not found.others_proven:
            verdict = Verdict.OPEN
        else:
            verdict = Verdict.VACUOUS if f"{instance}.looked_at" in found.unreached else Verdict.PROVEN
        yield Result(module, STATED, verdict, check.part, failed.get(instance))


def _result(specification: Specification, found: Found, traces: _Traces, module: str, name: str) -> Result:
    subject = (module, name)
    for failure in found.failures:
        if subject in subjects(specification, failure.name):
            part = specification.checks[failure.name.partition(".")[0]].part
            failed = Result(module, name, Verdict.FAILED, part, failure.cycle)
            shown = traces.find_shown(failure, subject)
            if shown is None:
                return traces.simulate_failure(failed)
            return replace(failed, element=shown.element, expected=shown.expected, seen=shown.seen)
    undecided = any(subject in subjects(specification, assertion) for assertion in found.open)
    for each in found.differences if undecided or found.timed_out else causes(found.differences):
        if subject == (each.module, each.property):
            part = part_of(each.element)
            return Result(
                module, name, Verdict.FAILED, part, each.cycle, each.element, each.expected, each.seen
            )
    if found.timed_out:
        return Result(module, name, Verdict.TIMED_OUT)
    proven = found.others_proven and not undecided
    return Result(module, name, Verdict.PROVEN if proven else Verdict.OPEN)


def _best(known: Sequence[Difference], subject: tuple[str, str]) -> Difference | None:
    """Return the element that shows a failure best: of its module and property, else of its module, else any."""
    same = [each for each in known if (each.module, each.property) == subject]
    near = [each for each in known if each.module == subject[0]]
    return next(iter([*same, *near, *known]), None)


class _Traces:
    """Counterexamples, each compared once with what the language says."""

    def __init__(self, specification: Specification) -> None:
        self._specification = specification
        self._seen: dict[str, tuple[Difference, ...]] = {}
        self._simulated: tuple[Difference, ...] | None = None

    def find_shown(self, failure: sby.Failure, subject: tuple[str, str]) -> Difference | None:
        """Return the element of its trace that shows a failure best."""
        if not failure.trace:
            return None
        if failure.trace not in self._seen:
            self._seen[failure.trace] = self._differences(failure.trace)
        return _best([each for each in self._seen[failure.trace] if each.cycle <= failure.cycle], subject)

    def simulate_failure(self, failed: Result) -> Result:
        """Return a failure whose trace shows it at no port, with an element of a run that does, where there is one.

        A solver begins in the cycle of reset, and stops as soon as a register is wrong that no port shows yet.
        """
        if self._simulated is None:
            self._simulated = simulate_differences(self._specification)
        shown = _best(self._simulated, (failed.module, failed.property))
        if shown is None:
            return failed
        return replace(
            failed, cycle=shown.cycle, element=shown.element, expected=shown.expected, seen=shown.seen
        )

    def _differences(self, trace: str) -> tuple[Difference, ...]:
        specification = self._specification
        ports, holder = specification.meaning.ports, targets_check(specification)
        names = ["rst_i", *(port.name for port in (*ports.inputs, *ports.outputs))]
        series = read_vcd(trace, [*names, f"{holder}.target_o"])
        targets = target_differences(specification.datapath, series, series.get(f"{holder}.target_o", ()))
        return (*targets, *replay(specification.datapath, series))
