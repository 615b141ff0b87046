"""Writer of a datapath in the language, for datapaths that were built in Python.

`parse_text(unparse(datapath), f"{datapath.name}.ca").datapath == datapath` for every datapath that `check` accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fpga.count_action.actions import KINDS
from fpga.count_action.defaults import COUNT_WIDTH
from fpga.count_action.expressions import STORED_OPERATORS
from fpga.count_action.graph import Graph
from fpga.count_action.model import (
    Action,
    ActionKind,
    Condition,
    Count,
    Datapath,
    Module,
    Operand,
    Ref,
    Signal,
    SignalKind,
    Target,
    is_formula_ref,
)

_MIN_RANGE = 3
"""Smallest number of neighbouring references that are written as a range."""


def unparse(datapath: Datapath) -> str:
    """Return the source text of a datapath, inputs first."""
    writer = SourceWriter(Graph(datapath))
    parts = [
        *writer.write_inputs(),
        *(line for module in datapath.modules for line in ("", *writer.write_module(module))),
    ]
    return "\n".join(parts).lstrip("\n") + "\n"


class SourceWriter:
    """Writes the parts of one datapath."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._sizes = {signal.name: signal.size for signal in graph.datapath.inputs}
        self._first_indices = {signal.name: 1 for signal in graph.datapath.inputs if signal.part_of}

    def write_inputs(self) -> Iterator[str]:
        """Yield the lines of the section of external inputs; none if there are no inputs."""
        if self.graph.datapath.inputs:
            inputs = self.graph.datapath.inputs
            end_signals_by_stream = {
                signal.part_of: signal.name.removeprefix(f"{signal.part_of}_") for signal in inputs
            }  # `keep` follows `last`, so it replaces the entry of `last`
            end_texts = {"": "", "last": " with last", "keep": " with last and keep"}
            texts = [
                f"{format_input(signal)}{end_texts[end_signals_by_stream.get(signal.name, '')]}"
                f"{_unparse_buffer(signal)}"
                for signal in inputs
                if not signal.part_of
            ]
            yield from _write_section("", "inputs", texts)

    def write_module(self, module: Module) -> Iterator[str]:
        """Yield the lines of a module."""
        yield f"module {module.name} {{"
        memories = module.list_actions(ActionKind.MEMORY)
        yield from (f"  {self.write_verb(module, memory)};" for memory in memories)
        yield from _write_section(
            "  ", "counts", [self._write_count(module, count) for count in module.counts]
        )
        yield from _write_section(
            "  ", "targets", [_write_target(module, target) for target in module.targets]
        )
        if len(module.actions) > len(memories):
            other_actions = (
                candidate
                for candidate in module.actions
                if not candidate.part_of and candidate not in memories
            )
            actions = [self._write_action(module, other_action) for other_action in other_actions]
            yield from _write_section("  ", "actions", actions)
        for claim in module.claims:
            yield f"  {claim.kind} {{ {claim.name}: {self._write_formula(claim.holds, module.name)} }}"
        yield "}"

    def _write_count(self, module: Module, count: Count) -> str:
        return f"{count.name}: {self.write_sum(module, count)}"

    def write_sum(self, module: Module, count: Count) -> str:
        """Return the text of a count without its name: terms, arbitration, bound, target, conditions and width."""
        constant_terms = [str(max(count.constant, 0))] if count.constant > 0 or not count.terms else []
        decrements = [
            *self.write_ref_ranges(count.taken, ".valid"),
            *([str(-count.constant)] if count.constant < 0 else []),
        ]
        words = [
            " - ".join(
                [
                    f"sum {' + '.join([*self.write_ref_ranges(count.terms, '.valid'), *constant_terms])}",
                    *decrements,
                ]
            )
        ]
        words += [f"by {count.order}{' until last' if count.whole else ''}"] if count.order else []
        words += ["over cycles"] if count.kind.value == "accumulate" else []
        words += [f"at most {self.write_value(count.bound)}"] if count.bound else []
        if count.aim is not None:
            words += [f"to {self.write_value(count.aim)}"]
        else:
            words += [] if _has_default_targets(module) else [f"to {count.target}"]
        words += [f"while {' and '.join(map(self._write_condition, count.gate))}"] if count.gate else []
        words += [f"width {count.width}"] if count.width != COUNT_WIDTH else []
        return " ".join(words)

    def _write_formula(self, operand: Operand, module_name: str) -> str:
        """Return the text of a formula, in brackets unless it is a name, a number or a function call."""
        if isinstance(operand, int):
            return str(operand)
        if isinstance(operand, Ref):
            return self.write_sample(operand)
        first_operand = operand.operands[0]
        if isinstance(first_operand, Ref) and operand.operator in STORED_OPERATORS | {"valid"}:
            name = (
                first_operand.name
                if first_operand.module == module_name
                else f"{first_operand.module}.{first_operand.name}"
            )
            return f"{self._write_name(first_operand)}.valid" if operand.operator == "valid" else name
        if operand.operator == "slice":
            value, high, low = operand.operands
            text = f"({value})" if isinstance(value, int) else self._write_formula(value, module_name)
            return f"{text}[{high}:{low}]"
        parts = [self._write_formula(part, module_name) for part in operand.operands]
        if operand.operator in _FUNCTIONS:
            return f"{operand.operator}({', '.join(parts)})"
        return _FORMULAS.get(operand.operator, f"({{}} {operand.operator} {{}})").format(*parts)

    def write_value(self, ref: Ref) -> str:
        """Return the text of a formula, in brackets or as a function call."""
        text = self._write_formula(self.graph.find_formula(ref), ref.module or "")
        return text if text.startswith(("(", *(f"{name}(" for name in _FUNCTIONS))) else f"({text})"

    def _write_condition(self, condition: Condition) -> str:
        if is_formula_ref(condition.ref):
            return f"{'not ' if condition.negated else ''}{self.write_value(condition.ref)}"
        suffix = ".valid" if self.graph.is_stream(condition.ref) else ""
        return f"{'not ' if condition.negated else ''}{self._write_name(condition.ref)}{suffix}"

    def _write_action(self, module: Module, action: Action) -> str:
        return (f"on {action.on}: " if len(module.counts) > 1 else "") + self.write_verb(module, action)

    def write_verb(self, module: Module, action: Action) -> str:
        """Return the text of an action without its count."""
        return KINDS[action.kind].write(self, module, action)

    # References

    def write_ref_ranges(self, refs: Sequence[Ref], suffix: str) -> Iterator[str]:
        """Yield the texts of references; consecutive elements, or consecutive lanes of a beat, become one range."""
        remaining_refs = list(refs)
        while remaining_refs:
            options = (
                self._write_beats(remaining_refs, suffix),
                self._write_elements(remaining_refs, suffix),
                self._write_lanes(remaining_refs, suffix),
            )
            length, text = max(options, key=lambda option: option[0])
            yield text
            del remaining_refs[:length]

    def _write_elements(self, refs: list[Ref], suffix: str) -> tuple[int, str]:
        """Return the number and text of neighbouring elements of one lane, or of the first reference alone."""
        first_ref = refs[0]
        if is_formula_ref(first_ref):
            return 1, self.write_value(first_ref)
        first_text = (
            self.write_sample(first_ref) if suffix == ".data" else self._write_beat(first_ref, suffix)
        )
        if suffix == ".data" and self.graph.find_source(first_ref).lanes > 1:
            return 1, first_text
        length = _count_prefix(
            refs, lambda ref, offset: ref == _move_ref(first_ref, index=first_ref.index + offset)
        )
        if length < _MIN_RANGE:
            return 1, first_text
        beat_suffix = suffix if self.graph.is_stream(first_ref) else ""
        begin = first_ref.index + self._first_indices.get(first_ref.name, 0)
        return length, f"{first_ref.name}[i]{beat_suffix} (i = {begin} to {begin + length - 1})"

    def _write_beats(self, refs: list[Ref], suffix: str) -> tuple[int, str]:
        """Return the number and text of samples that form complete beats of neighbouring elements; 0 if none do."""
        first_ref, lanes = refs[0], self.graph.find_source(refs[0]).lanes
        if suffix != ".data" or lanes == 1 or not self.graph.is_stream(first_ref):
            return 0, ""
        length = _count_prefix(
            refs,
            lambda ref, offset: (
                ref == _move_ref(first_ref, index=first_ref.index + offset // lanes, lane=offset % lanes)
            ),
        )
        beat_count = length // lanes
        if beat_count < _MIN_RANGE:
            return (lanes, f"{self._write_name(first_ref)}.data") if beat_count else (0, "")
        return (
            beat_count * lanes,
            f"{first_ref.name}[i].data (i = {first_ref.index} to {first_ref.index + beat_count - 1})",
        )

    def _write_lanes(self, refs: list[Ref], suffix: str) -> tuple[int, str]:
        """Return the number and text of neighbouring lanes of a beat; 0 if these are few. Texts count lanes from 1."""
        first_ref = refs[0]
        if suffix != ".data" or self.graph.find_source(first_ref).lanes == 1:
            return 0, ""
        length = _count_prefix(
            refs, lambda ref, offset: ref == _move_ref(first_ref, lane=first_ref.lane + offset)
        )
        if length < _MIN_RANGE:
            return 0, ""
        return (
            length,
            f"{self._write_name(first_ref)}.data[i] (i = {first_ref.lane + 1} to {first_ref.lane + length})",
        )

    def write_sample(self, ref: Ref) -> str:
        """Return the text of a sample, a flag, a number or a formula."""
        if is_formula_ref(ref):
            return self.write_value(ref)
        if not self.graph.is_stream(ref):
            return self._write_name(ref)
        lane_text = f"[{ref.lane + 1}]" if self.graph.find_source(ref).lanes > 1 else ""
        return f"{self._write_name(ref)}.data{lane_text}"

    def _write_beat(self, ref: Ref, suffix: str) -> str:
        return self._write_name(ref) + (suffix if self.graph.is_stream(ref) else "")

    def _write_name(self, ref: Ref) -> str:
        if ref.module is not None:
            return f"{ref.module}.{ref.name}"
        index = ref.index + self._first_indices.get(ref.name, 0)
        return f"{ref.name}[{index}]" if self._sizes[ref.name] > 1 else ref.name


_FUNCTIONS = frozenset({"max", "min", "table", "concat"})
_FORMULAS = {"if": "({1} if {0} else {2})", "not": "(not {})"}


def _write_section(indent: str, name: str, items: list[str]) -> Iterator[str]:
    if len(items) == 1 and len(items[0]) < 90:
        yield f"{indent}{name}: {{ {items[0]} }}"
        return
    yield f"{indent}{name}: {{"
    yield from (f"{indent}  {item};" for item in items)
    yield f"{indent}}}"


def format_input(signal: Signal) -> str:
    """Return the declaration of an input, without `with last` and `buffered`."""
    range_text = f"[0 to {signal.size - 1}]" if signal.size > 1 else ""
    if signal.kind is SignalKind.FLAG:
        return f"flag {signal.name}{range_text}"
    lanes_text = f"{signal.lanes} lanes of " if signal.lanes > 1 else ""
    signed_word = " signed" if signal.signed else ""
    return f"{signal.kind.value} {signal.name}{range_text} of {lanes_text}{signal.width} bits{signed_word}"


def _unparse_buffer(signal: Signal) -> str:
    return " buffered" if signal.buffered else ""


def _write_target(module: Module, target: Target) -> str:
    widths = [count.width for count in module.counts if count.target == target.name]
    width_text = f" width {target.width}" if target.width != max(widths, default=COUNT_WIDTH) else ""
    comparison_text = "at least " if target.at_least else ""
    carry_text = " carry" if target.carry else ""
    return f"{target.name}: {comparison_text}{target.reset or 'never'}{carry_text}{width_text}"


def _has_default_targets(module: Module) -> bool:
    """Return whether every count has its default target, so that `to` can be omitted."""
    names = [target.name for target in module.targets]
    plain_targets = [count.target for count in module.counts if count.aim is None]
    return len(names) == 1 or (names == plain_targets and len(plain_targets) == len(module.counts))


def _count_prefix(refs: list[Ref], is_next: Callable[[Ref, int], bool]) -> int:
    """Return the length of the longest prefix of `refs` for which `is_next(reference, position)` is true."""
    return next((position for position, ref in enumerate(refs) if not is_next(ref, position)), len(refs))


def _move_ref(ref: Ref, *, index: int | None = None, lane: int | None = None) -> Ref:
    return Ref(
        ref.name, ref.module, ref.index if index is None else index, ref.lane if lane is None else lane
    )
