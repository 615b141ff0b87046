"""Verdicts about the properties of each module, from the result of a search."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fpga.formal import sby
from fpga.formal.properties import CLAIM_PROPERTY, PROPERTIES, list_properties
from fpga.formal.replay import (
    Difference,
    find_element_differences,
    find_target_differences,
    get_part_name,
    select_causes,
)
from fpga.formal.search import Findings, read_vcd, simulate_differences
from fpga.formal.specification import Specification
from fpga.formal.subjects import find_subjects, find_targets_check


class Verdict(enum.Enum):
    """Result of the proof of one property of one module."""

    PROVEN = "proven"
    FAILED = "failed"
    """There is a counterexample that begins with a reset."""
    OPEN = "open"
    """Neither proven nor refuted."""
    TIMED_OUT = "timed out"
    """Neither proven nor refuted within the budget of processor time."""
    VACUOUS = "vacuous"
    """Proven, but meaningless: a count can never count, or no run meets the assumptions."""
    TESTED = "tested"
    """Simulated with random stimulus without a failure; not proven."""
    NOT_APPLICABLE = "not applicable"
    """The module has no part to which the property applies."""


@dataclass(frozen=True, slots=True)
class Result:
    """Verdict about a property of a module: `part_name` is the count, output or target that fails first, in `cycle`.

    `element` is the bit, number or sample that shows the failure: its value is `actual` instead of `expected`.
    """

    module: str
    property: str
    verdict: Verdict
    part_name: str = ""
    cycle: int | None = None
    element: str = ""
    expected: int | None = None
    actual: int | None = None


def judge_properties(specification: Specification, findings: Findings) -> Iterator[Result]:
    """Yield a result for every property of every module.

    A target belongs to no module, so its results appear under every module.
    """
    modules = (
        [specification.only_module]
        if specification.only_module
        else [module.name for module in specification.datapath.modules]
    )
    replayer = _TraceReplayer(specification)
    for module in modules:
        applicable_names = {
            property_.name
            for check in specification.checks.values()
            if check.module in {module, ""}
            for property_ in list_properties(check.block)
        }
        for property_ in PROPERTIES:
            if property_.name == CLAIM_PROPERTY:
                yield from _judge_claims(specification, findings, module)
            elif property_.name in applicable_names:
                yield _judge_property(specification, findings, replayer, module, property_.name)
            else:
                yield Result(module, property_.name, Verdict.NOT_APPLICABLE)


def _judge_claims(specification: Specification, findings: Findings, module: str) -> Iterator[Result]:
    """Yield a result for each claim of a module; it is VACUOUS if no run meets the assumptions."""
    failure_cycles = {failure.name.partition(".")[0]: failure.cycle for failure in findings.failures}
    undecided_instances = {name.partition(".")[0] for name in findings.undecided_assertions}
    for instance, check in specification.checks.items():
        if check.block != "count_action_claim" or check.module != module:
            continue
        if instance in failure_cycles:
            verdict = Verdict.FAILED
        elif CLAIM_PROPERTY in findings.timed_out_properties:
            verdict = Verdict.TIMED_OUT
        elif instance in undecided_instances or not findings.are_others_proven:
            verdict = Verdict.OPEN
        else:
            verdict = (
                Verdict.VACUOUS if f"{instance}.looked_at" in findings.unreached_covers else Verdict.PROVEN
            )
        yield Result(module, CLAIM_PROPERTY, verdict, check.part_name, failure_cycles.get(instance))


def _judge_property(
    specification: Specification, findings: Findings, replayer: _TraceReplayer, module: str, name: str
) -> Result:
    subject = (module, name)
    for failure in findings.failures:
        if subject in find_subjects(specification, failure.name):
            part_name = specification.checks[failure.name.partition(".")[0]].part_name
            failed_result = Result(module, name, Verdict.FAILED, part_name, failure.cycle)
            difference = replayer.find_difference(failure, subject)
            if difference is None:
                return replayer.add_simulated_difference(failed_result)
            return replace(
                failed_result,
                element=difference.element,
                expected=difference.expected,
                actual=difference.actual,
            )
    is_undecided = any(
        subject in find_subjects(specification, assertion) for assertion in findings.undecided_assertions
    )
    # A later difference may only be a consequence of the first, so it counts only where the proof is undecided.
    is_open = is_undecided or name in findings.timed_out_properties
    for candidate in findings.differences if is_open else select_causes(findings.differences):
        if subject == (candidate.module, candidate.property):
            part_name = get_part_name(candidate.element)
            return Result(
                module,
                name,
                Verdict.FAILED,
                part_name,
                candidate.cycle,
                candidate.element,
                candidate.expected,
                candidate.actual,
            )
    if name in findings.timed_out_properties:
        return Result(module, name, Verdict.TIMED_OUT)
    is_proven = findings.are_others_proven and not is_undecided
    return Result(module, name, Verdict.PROVEN if is_proven else Verdict.OPEN)


def _select_most_specific(differences: Sequence[Difference], subject: tuple[str, str]) -> Difference | None:
    """Return a difference of the property, else of the module, else any difference, or None if there is none."""
    property_differences = [
        difference for difference in differences if (difference.module, difference.property) == subject
    ]
    module_differences = [difference for difference in differences if difference.module == subject[0]]
    return next(iter([*property_differences, *module_differences, *differences]), None)


class _TraceReplayer:
    """Differences of counterexamples from the language. Each counterexample is replayed once."""

    def __init__(self, specification: Specification) -> None:
        self._specification = specification
        self._differences_by_trace: dict[str, tuple[Difference, ...]] = {}
        self._simulated_differences: tuple[Difference, ...] | None = None

    def find_difference(self, failure: sby.Failure, subject: tuple[str, str]) -> Difference | None:
        """Return the most specific difference in the trace of a failure, or None if no port shows the failure."""
        if not failure.vcd_text:
            return None
        if failure.vcd_text not in self._differences_by_trace:
            self._differences_by_trace[failure.vcd_text] = self._replay_trace(failure.vcd_text)
        return _select_most_specific(
            [
                difference
                for difference in self._differences_by_trace[failure.vcd_text]
                if difference.cycle <= failure.cycle
            ],
            subject,
        )

    def add_simulated_difference(self, failed_result: Result) -> Result:
        """Return a failure with a difference from a random run, if there is one.

        The trace of the failure shows no difference at any port, because the solver stops as soon as a register is
        wrong, before any port shows it.
        """
        if self._simulated_differences is None:
            self._simulated_differences = simulate_differences(self._specification)
        difference = _select_most_specific(
            self._simulated_differences, (failed_result.module, failed_result.property)
        )
        if difference is None:
            return failed_result
        return replace(
            failed_result,
            cycle=difference.cycle,
            element=difference.element,
            expected=difference.expected,
            actual=difference.actual,
        )

    def _replay_trace(self, trace: str) -> tuple[Difference, ...]:
        specification = self._specification
        ports, targets_instance = specification.expressions.ports, find_targets_check(specification)
        names = ["rst_i", *(port.name for port in (*ports.inputs, *ports.outputs))]
        series = read_vcd(trace, [*names, f"{targets_instance}.target_o"])
        target_differences = find_target_differences(
            specification.datapath, series, series.get(f"{targets_instance}.target_o", ())
        )
        return (*target_differences, *find_element_differences(specification.datapath, series))
