"""`stream` sends the samples in the cycle of the fire as a beat (R6, R7); `merge` sends the selected beat (R19)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fpga.count_action.actions.kind import (
    Edge,
    Hardware,
    Kind,
    Lines,
    Shape,
    Statements,
    TextWriter,
    UnresolvedAction,
)
from fpga.count_action.actions.proof import CLOCK_CONNECTIONS, Check, ProofExpressions, concatenate, write_bit
from fpga.count_action.defaults import compute_beat_width, is_beat_signed
from fpga.count_action.diagnostics import Diagnostics, make_diagnostic, quote
from fpga.count_action.expressions import count_bits, get_bit_interval
from fpga.count_action.model import MAX_LANES, Action, ActionKind, Datapath, Module


class Beat(Kind):
    """An action that sends a beat of the samples in the cycle of the fire."""

    kind = ActionKind.STREAM
    noun = "stream"
    rules = ("stream", "merge")

    def parse(self, rule: str, *parts: Any) -> dict[str, Any]:
        if rule == "merge":
            end_values, width, sign, name = parts
            return {
                "name": name,
                "width": width,
                "sign": sign and sign.signed,
                "merged_ends": end_values or (),
            }
        *samples, width, sign, end_values, name = parts
        return {
            "name": name,
            "samples": tuple(samples),
            "width": width,
            "sign": sign and sign.signed,
            "ends": end_values or (),
        }

    def write(self, text_writer: TextWriter, module: Module, action: Action) -> str:
        end_actions = [candidate for candidate in module.actions if candidate.part_of == action.output]
        if action.merges:
            names = [end_action.output.removeprefix(f"{action.output}_") for end_action in end_actions]
            words = ["merge", *([f"with {' and '.join(names)}"] if end_actions else [])]
            width, signed = count_bits(*text_writer.graph.compute_merged_interval(action))
        else:
            words = ["stream", ", ".join(text_writer.write_ref_ranges(action.refs, ".data"))]
            sample_shapes = [text_writer.graph.find_source(ref) for ref in action.refs]
            width, signed = (
                compute_beat_width(source.width for source in sample_shapes),
                is_beat_signed(source.signed for source in sample_shapes),
            )
        words += [f"width {action.width}"] if action.width != width else []
        words += ["signed" if action.signed else "unsigned"] if action.signed != signed else []
        if not action.merges:
            words += [
                f"{word} {text_writer.write_value(end.refs[0])}"
                for word, end in zip(("last", "keep"), end_actions, strict=False)
            ]
        return " ".join([*words, *([f"as {action.output}"] if action.output != "out" else [])])

    def compute_shape(
        self, action: UnresolvedAction, get_sample_shapes: Callable[[], Sequence[Shape]]
    ) -> Shape:
        sample_shapes = get_sample_shapes()
        width, signed = (
            compute_beat_width(source.width for source in sample_shapes),
            is_beat_signed(source.signed for source in sample_shapes),
        )
        lanes = sum(source.lanes for source in sample_shapes)
        if action.verb == "merge":
            intervals = [get_bit_interval(source.width, signed=source.signed) for source in sample_shapes]
            width, signed = count_bits(min(low for low, _ in intervals), max(high for _, high in intervals))
            lanes = sample_shapes[0].lanes
        return Shape(
            lanes,
            width if action.width is None else action.width,
            signed if action.sign is None else action.sign,
        )

    def find_problems(self, datapath: Datapath, action: Action) -> Diagnostics:
        if not 1 <= len(action.refs) <= MAX_LANES:
            problem = f"the stream {quote(action.output)} has {len(action.refs)} samples"
            yield make_diagnostic(
                action.location,
                f"{problem}; 1 to {MAX_LANES} are possible",
                "Name the samples, or split the beat.",
            )

    def describe(self, action: Action, name: str) -> str:
        return f"a beat of {len(action.refs)} samples on {name}"

    def drive(self, edge: Edge, module: Module, action: Action) -> int | None:
        if not edge.fires(module, action.on):
            return None
        return sum(
            (edge.read_sample(ref) & (1 << action.width) - 1) << lane * action.width
            for lane, ref in enumerate(action.refs)
        )

    def update(self, statements: Statements, module: Module, action: Action) -> Lines:
        return statements.write_beat(module, action, action.refs)

    def build(self, hardware: Hardware, module: Module, action: Action) -> Lines:
        return hardware.write_beat(module, action, hardware.write_samples(action))

    def prove(self, expressions: ProofExpressions, module: Module, action: Action) -> Iterator[Check]:
        yield make_beat_check(
            expressions,
            module,
            action,
            concatenate(expressions.resize_sample(ref, action.width) for ref in action.refs),
        )


def make_beat_check(expressions: ProofExpressions, module: Module, action: Action, data: str) -> Check:
    """Return the check that a beat is sent with `data` when its count fires."""
    name = f"{module.name}_{action.output}"
    ports = {
        **CLOCK_CONNECTIONS,
        "fire_i": expressions.write_fire(module, action.on),
        "data_i": data,
        "ready_i": f"ready_{name}",
        "valid_o": f"{name}_valid_o",
        "data_o": f"{name}_data_o",
        "stalled_o": f"{name}_valid_o[0] && !ready_{name}",
    }
    parameters = {"Width": expressions.find_beat_width(module, action), "Alone": write_bit(False)}
    return Check("count_action_beat", module.name, action.output, parameters, ports)
