"""`emit`: a beat with the sum of the samples since the last fire (R11), or with the largest or smallest (R14)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fpga.count_action.actions.beat import make_beat_check
from fpga.count_action.actions.kind import (
    Edge,
    Hardware,
    Kind,
    Lines,
    Shape,
    Statements,
    TextWriter,
    UnresolvedAction,
    write_if,
)
from fpga.count_action.actions.proof import (
    CLOCK_CONNECTIONS,
    TRUE,
    Check,
    ProofExpressions,
    concatenate,
    declare_hidden_wire,
    write_bit,
)
from fpga.count_action.defaults import EMIT_WIDTH, is_beat_signed
from fpga.count_action.diagnostics import Diagnostics, find_range_error, make_diagnostic, quote
from fpga.count_action.expressions import decode_number
from fpga.count_action.model import MAX_LANES, MAX_WIDTH, Action, ActionKind, Datapath, Module


@dataclass(frozen=True, slots=True)
class Extreme:
    """The largest (or smallest) sample since the last fire, its index, and the number of samples (R14)."""

    sample: int = 0
    index: int = 0
    sample_count: int = 0


class Emit(Kind):
    """An action that sends a beat with the sum, or with the largest or smallest sample."""

    kind = ActionKind.EMIT
    noun = "sum"
    rules = ("emit", "emit_extreme")
    samples_every_cycle = True

    def parse(self, rule: str, *parts: Any) -> dict[str, Any]:
        *samples, shift, width, sign, name = parts
        keyword_values: dict[str, Any] = {}
        if rule == "emit_extreme":
            reduction, *samples, index = samples
            keyword_values = {"reduction": reduction, "with_index": index is not None}
        return {
            "verb": "emit",
            "name": name,
            "samples": tuple(samples),
            "width": width,
            "sign": sign and sign.signed,
            "numbers": {"shift": shift},
            "words": keyword_values,
        }

    def write(self, text_writer: TextWriter, module: Module, action: Action) -> str:
        separator = " + " if action.reduction == "sum" else ", "
        words = [
            f"emit {action.reduction}",
            separator.join(text_writer.write_ref_ranges(action.refs, ".data")),
        ]
        words += ["with index"] if action.with_index else []
        words += [f"shift {action.shift}"] if action.shift else []
        words += [f"width {action.width}"] if action.width != EMIT_WIDTH else []
        if action.signed != is_beat_signed(text_writer.graph.find_source(ref).signed for ref in action.refs):
            words.append("signed" if action.signed else "unsigned")
        return " ".join([*words, *([f"as {action.output}"] if action.output != "out" else [])])

    def compute_shape(
        self, action: UnresolvedAction, get_sample_shapes: Callable[[], Sequence[Shape]]
    ) -> Shape:
        sample_shapes = get_sample_shapes()
        return Shape(
            2 if action.words.get("with_index") else 1,
            EMIT_WIDTH if action.width is None else action.width,
            is_beat_signed(source.signed for source in sample_shapes) if action.sign is None else action.sign,
        )

    def find_problems(self, datapath: Datapath, action: Action) -> Diagnostics:
        name = quote(action.output)
        if not 1 <= len(action.refs) <= MAX_LANES:
            message = f"the sum {name} has {len(action.refs)} samples; 1 to {MAX_LANES} are possible"
            yield make_diagnostic(action.location, message, "Name the samples, or split the beat.")
        yield from find_range_error(f"shift of sum {name}", action.shift, 0, MAX_WIDTH - 1, action.location)
        if action.reduction not in {"sum", "max", "min"} or (action.with_index and action.reduction == "sum"):
            message = f"`emit {action.reduction}`{' with index' if action.with_index else ''}"
            yield make_diagnostic(
                action.location,
                f"{message} is not supported",
                "Use sum, max or min; only max and min have an index.",
            )

    def describe(self, action: Action, name: str) -> str:
        reduction_text = {"sum": "the sum", "max": "the largest sample", "min": "the smallest sample"}[
            action.reduction
        ]
        return f"{reduction_text} on {name} ({'R11' if action.reduction == 'sum' else 'R14'})"

    def reset(self, action: Action) -> int | Extreme:
        return 0 if action.reduction == "sum" else Extreme()

    def keep(self, edge: Edge, module: Module, action: Action) -> int | Extreme:
        if edge.restarts(module, action.on):
            return self.reset(action)
        return (
            self._add_samples(edge, module, action)
            if action.reduction == "sum"
            else self._find_extreme(edge, module, action)
        )

    def drive(self, edge: Edge, module: Module, action: Action) -> int | None:
        if not edge.fires(module, action.on):
            return None
        mask = (1 << action.width) - 1
        if action.reduction == "sum":
            return (
                decode_number(self._add_samples(edge, module, action), action.width, signed=action.signed)
                >> action.shift
                & mask
            )
        extreme = self._find_extreme(edge, module, action)
        value = extreme.sample >> action.shift & mask
        return value | extreme.index << action.width if action.with_index else value

    def _add_samples(self, edge: Edge, module: Module, action: Action) -> int:
        """Return the sum including the samples of this cycle, modulo 2^width."""
        total: int = edge.read_action_state(module, action.output)
        if edge.is_counting(module, action.on):
            total += sum(edge.read_sample(ref) for ref in action.refs if edge.are_beats_moving(ref))
        return total & (1 << action.width) - 1

    def _find_extreme(self, edge: Edge, module: Module, action: Action) -> Extreme:
        """Return the extreme of all samples so far, including those of this cycle, in the action's width and sign."""
        extreme: Extreme = edge.read_action_state(module, action.output)
        if not edge.is_counting(module, action.on):
            return extreme
        mask = (1 << action.width) - 1
        for ref in action.refs:
            if edge.are_beats_moving(ref):
                sample = decode_number(edge.read_sample(ref) & mask, action.width, signed=action.signed)
                is_more_extreme = (
                    sample > extreme.sample if action.reduction == "max" else sample < extreme.sample
                )
                if extreme.sample_count == 0 or is_more_extreme:
                    extreme = Extreme(sample, extreme.sample_count & mask, extreme.sample_count)
                extreme = Extreme(extreme.sample, extreme.index, extreme.sample_count + 1)
        return extreme

    # Registers of the fast simulator. Sum: `a`. Extreme: `a` is the sample, `h` is 1 if there is one, `k` is its index,
    # `q` the number of samples. A level count keeps nothing between cycles, so with a level count these are variables.

    def list_register_suffixes(self, module: Module, action: Action) -> str:
        return _list_register_suffixes(action) if module.count(action.on).accumulates else ""

    def collect(self, statements: Statements, module: Module, action: Action) -> Lines:
        if action.reduction != "sum":
            yield from self._collect_extreme(statements, module, action)
        elif module.count(action.on).accumulates:
            name = statements.find_register(module, action, "a")
            yield write_if(
                statements.write_counting_condition(module, action),
                [f"{name} = {_make_total(statements, action, name)}"],
            )

    def _collect_extreme(self, statements: Statements, module: Module, action: Action) -> Lines:
        extreme, has_extreme, index, sample_count = (
            statements.find_register(module, action, register_suffix)
            for register_suffix in _list_register_suffixes(action)
        )
        sample, is_counted = (statements.find_register(module, action, letter) for letter in "zu")
        if not module.count(action.on).accumulates:
            yield from (f"{name} = 0" for name in (extreme, has_extreme, index, sample_count))
        for ref in action.refs:
            move_conditions = [
                condition
                for condition in (
                    statements.write_counting_condition(module, action),
                    statements.write_move_condition(ref),
                )
                if condition != "1"
            ]
            yield f"{sample} = {statements.write_sample(ref, action.width, signed=action.signed)}"
            yield f"{is_counted} = {' & '.join(dict.fromkeys(move_conditions)) or '1'}"
            relation = f"{sample} > {extreme}" if action.reduction == "max" else f"{extreme} > {sample}"
            updates = [
                f"{extreme} = {sample}",
                f"{index} = {sample_count} & {_make_mask(action)}",
                f"{has_extreme} = 1",
            ]
            yield write_if(f"{is_counted} & (({has_extreme} ^ 1) | ({relation}))", updates)
            yield f"{sample_count} = {sample_count} + {is_counted}"

    def update(self, statements: Statements, module: Module, action: Action) -> Lines:
        accumulator = statements.find_register(module, action, "a")
        accumulates = module.count(action.on).accumulates
        if action.reduction != "sum":
            samples = [f"({accumulator} >> {action.shift} & {_make_mask(action)})"]
            samples += [statements.find_register(module, action, "k")] if action.with_index else []
            yield from statements.write_beat(module, action, samples)
        else:
            if not accumulates:
                yield f"{accumulator} = {_make_total(statements, action)}"
            value = statements.write_number(accumulator, action.width, signed=action.signed)
            shifted_value = (
                f"{value} >> {action.shift} & {_make_mask(action)}" if action.shift else accumulator
            )
            yield from statements.write_beat(module, action, [shifted_value])
        if accumulates:
            yield from (
                f"{statements.find_register(module, action, letter)} = 0"
                for letter in _list_register_suffixes(action)
            )

    def build(self, hardware: Hardware, module: Module, action: Action) -> Lines:
        name = f"{module.name}_{action.output}"
        ports = {
            "clear_i": hardware.write_clear(module, action),
            "take_i": hardware.write_counted_mask(module, action),
        }
        parameters: dict[str, object] = {"Samples": len(action.refs)}
        common_parameters = {
            "Width": action.width,
            "Accumulate": hardware.write_bit(module.count(action.on).accumulates),
            "Shift": action.shift,
            "Signed": hardware.write_bit(action.signed),
        }
        if action.reduction == "sum":
            width, signed = hardware.find_sample_type(action)
            parameters |= {
                "SampleWidth": width,
                "SampleSigned": hardware.write_bit(signed),
                **common_parameters,
            }
            ports |= {"samples_i": hardware.write_samples(action, width), "sum_o": f"{name}_sum"}
            yield hardware.declare_wire(f"{name}_sum", action.width)
            yield from hardware.write_block("count_action_sum", f"u_{name}_sum", parameters, ports)
            yield from hardware.write_beat(module, action, f"{name}_sum")
            return
        parameters |= {
            **common_parameters,
            "Minimum": hardware.write_bit(action.reduction == "min"),
            "WithIndex": hardware.write_bit(action.with_index),
        }
        ports |= {"samples_i": hardware.write_samples(action), "beat_o": f"{name}_extreme"}
        yield hardware.declare_wire(f"{name}_extreme", hardware.find_beat_width(module, action))
        yield from hardware.write_block("count_action_extreme", f"u_{name}_extreme", parameters, ports)
        yield from hardware.write_beat(module, action, f"{name}_extreme")

    def prove(self, expressions: ProofExpressions, module: Module, action: Action) -> Iterator[Check]:
        """Yield the check of the sum or extreme sample, and the check of the beat.

        The value of a level count is checked only when it fires: no beat moves in any other cycle.
        """
        count = module.count(action.on)
        fire = expressions.write_fire(module, count.name)
        name, block_suffix = (
            f"{module.name}_{action.output}",
            "sum" if action.reduction == "sum" else "extreme",
        )
        bit_count = action.width if block_suffix == "sum" else expressions.find_beat_width(module, action)
        parameters = {
            "Samples": len(action.refs),
            "Width": action.width,
            "Accumulate": write_bit(count.accumulates),
            "Shift": action.shift,
            "Signed": write_bit(action.signed),
        }
        ports: dict[str, object] = {
            **CLOCK_CONNECTIONS,
            "clear_i": f"{fire} || {expressions.write_clear(module, count)}",
            "take_i": concatenate(
                f"({expressions.write_counted_condition(module, count, ref)})" for ref in action.refs
            ),
            "samples_i": concatenate(expressions.resize_sample(ref, action.width) for ref in action.refs),
            "check_i": TRUE if count.accumulates else fire,
            "expected_o": f"expected_{name}",
        }
        declarations = [
            f"logic [{bit_count - 1}:0] expected_{name};",
            declare_hidden_wire(f"{name}_{block_suffix}", bit_count),
        ]
        if block_suffix == "sum":
            parameters |= {"SampleWidth": action.width}
            ports |= {"sum_o": f"\\dut.{name}_sum ", "terms_i": f"\\dut.u_{name}_sum.terms "}
            declarations.append(declare_hidden_wire(f"u_{name}_sum.terms", len(action.refs) * action.width))
            registers = {"base_i": ("sum_q", action.width)}
        else:
            parameters |= {
                "Minimum": write_bit(action.reduction == "min"),
                "WithIndex": write_bit(action.with_index),
            }
            ports |= {"beat_o": f"\\dut.{name}_extreme "}
            registers = {
                "any_i": ("any_q", 1),
                "best_i": ("best_q", action.width),
                "index_i": ("index_q", action.width),
                "counted_i": ("counted_q", action.width),
            }
        for port, (register, width) in registers.items():
            path = f"u_{name}_{block_suffix}.{register}"
            ports[port] = f"\\dut.{path} " if count.accumulates else f"{width}'d0"
            declarations += [declare_hidden_wire(path, width)] if count.accumulates else []
        yield Check(
            f"count_action_{block_suffix}", module.name, action.output, parameters, ports, tuple(declarations)
        )
        yield make_beat_check(expressions, module, action, f"expected_{name}")


def _list_register_suffixes(action: Action) -> str:
    return "a" if action.reduction == "sum" else "ahkq"


def _make_mask(action: Action) -> int:
    return (1 << action.width) - 1


def _make_total(statements: Statements, action: Action, initial_sum: str = "") -> str:
    """Return the expression of `initial_sum` plus the samples counted in this cycle, modulo 2^width."""
    samples_by_condition: dict[str, list[str]] = {}
    for ref in action.refs:
        samples_by_condition.setdefault(statements.write_move_condition(ref), []).append(
            statements.write_sample(ref)
        )
    parts = [initial_sum] if initial_sum else []
    for move_condition, samples in samples_by_condition.items():
        partial_sum = " + ".join(samples)
        parts.append(partial_sum if move_condition == "1" else f"(({partial_sum}) & -({move_condition}))")
    return f"({' + '.join(parts)}) & {_make_mask(action)}"
