"""The proof of a datapath as SystemVerilog: its top with the checks of every part.

The only dependency on the generator of the top are names of some wires and registers that no port shows: the targets
in force (`target`), sums and extreme samples with their registers, and buffers. A wrong name would leave an input of
the checks undriven, and the proof would fail.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fpga.count_action.actions import KINDS
from fpga.count_action.actions.proof import (
    CLOCK_CONNECTIONS,
    FALSE,
    Check,
    concatenate,
    declare_hidden_wire,
    write_bit,
)
from fpga.count_action.arbitration import list_registers, make_last_ref
from fpga.count_action.model import Count, Datapath, Module, Ref, Signal
from fpga.count_action.ports import list_buffer_ports
from fpga.formal.blocks import BEGINNING_LINES, read_checks_sources
from fpga.formal.port_expressions import FORMULA_WIDTH, INCREMENT_WIDTH, PortExpressions
from fpga.hdl.design import Design, make_design


@dataclass(frozen=True)
class Specification:
    """The proof of a datapath or, with `only_module`, of that module with the targets and the buffers.

    `delivered_design` is a design to prove instead of a newly generated one. `delivered_wire_names` maps names of wires
    inside a generated top to their names in `delivered_design`.
    """

    datapath: Datapath
    only_module: str | None = None
    claims: frozenset[tuple[str, str]] | None = None
    """Claims (module, name) to prove under the assumptions of the text (R21); None: neither claims nor assumptions."""
    delivered_design: Design | None = None
    delivered_wire_names: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def expressions(self) -> PortExpressions:
        """Expressions over the ports."""
        return PortExpressions(self.datapath)

    @cached_property
    def checks(self) -> dict[str, Check]:
        """The instances of checks, by their instance names in the proof."""
        modules = [module for module in self.datapath.modules if self.only_module in {None, module.name}]
        all_checks = [_make_targets_check(self.datapath), *make_buffer_checks(self.expressions)]
        all_checks += [check for module in modules for check in self._list_checks(module)]
        if self.claims is not None:
            all_checks += make_claim_checks(self.expressions, self.claims)
        return {f"check_{index}": check for index, check in enumerate(all_checks)}

    @cached_property
    def design(self) -> Design:
        """The design that is proven."""
        return self.delivered_design or make_design(self.datapath)

    @property
    def top(self) -> str:
        """The name of the top of the proof."""
        return f"{self.datapath.name}_proof"

    def build_sources(self) -> dict[str, str]:
        """Return all files by name, with the top of the proof last."""
        blocks = [check.block for check in self.checks.values()]
        return {
            **dict(self.design.sources),
            **read_checks_sources(blocks),
            f"{self.top}.sv": self.write_text(),
        }

    def write_text(self) -> str:
        """Return the text of the top of the proof. It has the inputs of the datapath."""
        ports = self.expressions.ports
        inputs = [f"  input logic [{port.width - 1}:0] {port.name}" for port in ports.inputs]
        width = sum(target.width for _, target in self.datapath.list_targets())
        lines = [f"logic [{port.width - 1}:0] {port.name};" for port in ports.outputs]
        lines += [f"{self.datapath.name} dut (.*);", declare_hidden_wire("target", width)]
        lines += [*write_hidden_wires(self.expressions), *self.expressions.write_shared_lines()]
        if self.claims is not None:
            lines += write_assumptions(self.expressions)
        for name, check in self.checks.items():
            lines += check.write_lines(name)
        head = [
            f"module {self.top} (",
            ",\n".join(["  input logic clk_i", "  input logic rst_i", *inputs]),
            ");",
        ]
        text = "\n".join([*head, *BEGINNING_LINES, *(f"  {line}" for line in lines), "endmodule", ""])
        for name, delivered_name in self.delivered_wire_names.items():
            text = text.replace(f"\\dut.{name} ", f"\\dut.{delivered_name} ")
        return text

    def _list_checks(self, module: Module) -> Iterator[Check]:
        for count in module.counts:
            yield self._make_count_check(module, count)
            streams = [ref for ref in count.counted if ref.module is None and self.expressions.is_stream(ref)]
            if streams:
                yield self._make_ready_check(module, count, streams)
            if count.order:
                yield make_arbiter_check(self.expressions, module, count)
        proven_outputs: set[str] = set()
        for action in module.actions:
            if action.kind.drives and action.output not in proven_outputs:
                proven_outputs.add(action.output)
                yield from KINDS[action.kind].prove(self.expressions, module, action)

    def _make_count_check(self, module: Module, count: Count) -> Check:
        expressions = self.expressions
        index = expressions.get_index(module, count.name)
        limit_bits = expressions.find_limit_bits(module, count)
        increment = f"increment_{index}"
        parameters = {
            "Width": count.width,
            "IncrementWidth": INCREMENT_WIDTH,
            "TargetWidth": limit_bits.width,
            "AtLeast": write_bit(module.target(count.target).at_least),
            "Carry": write_bit(module.target(count.target).carry),
        }
        declarations = (
            f"logic [{INCREMENT_WIDTH - 1}:0] {increment};",
            f"assign {increment} = {expressions.write_increment(count)};",
        )
        ports = {
            **CLOCK_CONNECTIONS,
            "enable_i": (
                f"({expressions.write_enable_condition(count)})"
                f" && {expressions.write_no_earlier_fire_condition(module, count)}"
            ),
            "stall_i": f"stall_{module.name}",
            "clear_i": expressions.write_clear(module, count),
            "clear_status_i": "clear_status_i[0]",
            "increment_i": increment,
            "target_i": limit_bits,
            "fire_o": f"fire_o[{index}]",
            "count_o": expressions.find_count_bits(module, count),
            "overshoot_o": f"overshoot_o[{index}]",
            "saturated_o": f"saturated_o[{index}]",
        }
        if not count.accumulates:
            return self._make_level_check(module, count, Check("", "", "", parameters, ports, declarations))
        if count.goes_down:
            return self._make_up_and_down_check(
                module, count, Check("", "", "", parameters, ports, declarations)
            )
        return Check("count_action", module.name, count.name, parameters, ports, declarations)

    def _make_level_check(self, module: Module, count: Count, check: Check) -> Check:
        """Return the check of a level count, from the check of an accumulating count: both read the increment."""
        shared_ports = ("enable_i", "stall_i", "target_i", "fire_o")
        status = " || ".join(f"{check.ports[port]}" for port in ("overshoot_o", "saturated_o"))
        ports = {
            **CLOCK_CONNECTIONS,
            **{port: check.ports[port] for port in shared_ports},
            "first_i": check.ports["increment_i"],
            "second_i": f"{INCREMENT_WIDTH}'d0",
            "status_i": f"{check.ports['count_o']} != 0 || {status}",
        }
        parameters = {
            "AddendWidth": INCREMENT_WIDTH,
            **{name: check.parameters[name] for name in ("TargetWidth", "AtLeast")},
        }
        return Check("count_action_level", module.name, count.name, parameters, ports, check.declarations)

    def _make_up_and_down_check(self, module: Module, count: Count, check: Check) -> Check:
        """Return the check of a count between bounds, from the check of a plain count (R17)."""
        decrement = f"decrement_{self.expressions.get_index(module, count.name)}"
        parameters = {**check.parameters, "BoundWidth": FORMULA_WIDTH}
        ports = {
            **check.ports,
            "up_i": check.ports["increment_i"],
            "down_i": decrement,
            "bound_i": self.expressions.write_bound(count),
        }
        del ports["increment_i"]
        declarations = (
            *check.declarations,
            f"logic [{INCREMENT_WIDTH - 1}:0] {decrement};",
            f"assign {decrement} = {self.expressions.write_increment(count, is_decrement=True)};",
        )
        return Check("count_action_up_down", module.name, count.name, parameters, ports, declarations)

    def _make_ready_check(self, module: Module, count: Count, streams: list[Ref]) -> Check:
        ports = {
            "ready_o": concatenate(self.expressions.write_ready_bit(ref) for ref in streams),
            "expected_i": concatenate(f"({self.expressions.write_ready_condition(ref)})" for ref in streams),
        }
        return Check("count_action_ready", module.name, count.name, {"Streams": len(streams)}, ports)


def _make_targets_check(datapath: Datapath) -> Check:
    targets = [target for _, target in datapath.list_targets()]
    reset = concatenate(f"{target.width}'d{target.reset}" for target in targets)
    parameters = {"Width": sum(target.width for target in targets), "Reset": reset}
    ports = {
        **CLOCK_CONNECTIONS,
        "commit_i": "commit_i",
        "shadow_i": "target_shadow_i",
        "target_o": "\\dut.target ",
    }
    return Check("count_action_targets", "", "targets", parameters, ports)


def write_hidden_wires(expressions: PortExpressions) -> Iterator[str]:
    """Yield the declarations of hidden wires: buffered streams behind their buffers, and two registers per buffer."""
    for signal, ports in _list_buffered_streams(expressions):
        yield declare_hidden_wire(f"{signal.name}_valid_held", signal.size)
        yield declare_hidden_wire(f"{signal.name}_ready_held", signal.size)
        yield from (declare_hidden_wire(f"{port}_held", width * signal.size) for port, width in ports)
        for index in range(signal.size):
            yield declare_hidden_wire(f"{_name_buffer(signal, index)}.full_q", 1)
            yield declare_hidden_wire(
                f"{_name_buffer(signal, index)}.second_q", sum(width for _, width in ports)
            )


def make_buffer_checks(expressions: PortExpressions) -> Iterator[Check]:
    """Yield the check of every buffer; like the check of targets, it belongs to no module."""
    for signal, ports in _list_buffered_streams(expressions):
        for index in range(signal.size):
            external_bits, internal_bits = (
                concatenate(
                    f"{port_format.format(port)}[{index * port_width}+:{port_width}]"
                    for port, port_width in ports
                )
                for port_format in ("{}_i", "\\dut.{}_held ")
            )
            connections = {
                **CLOCK_CONNECTIONS,
                "valid_i": f"{signal.name}_valid_i[{index}]",
                "data_i": external_bits,
                "ready_o": f"{signal.name}_ready_o[{index}]",
                "valid_o": f"\\dut.{signal.name}_valid_held [{index}]",
                "data_o": internal_bits,
                "ready_i": f"\\dut.{signal.name}_ready_held [{index}]",
                "full_i": f"\\dut.{_name_buffer(signal, index)}.full_q ",
                "second_i": f"\\dut.{_name_buffer(signal, index)}.second_q ",
            }
            check_parameters = {"Width": sum(bits for _, bits in ports)}
            yield Check("count_action_buffer", "", signal.name, check_parameters, connections)


def _list_buffered_streams(expressions: PortExpressions) -> Iterator[tuple[Signal, list[tuple[str, int]]]]:
    for signal in expressions.datapath.inputs:
        if signal.buffered:
            buffer_ports = list_buffer_ports(expressions.datapath, signal)
            yield signal, [(port.removesuffix("_i"), width) for port, width in buffer_ports]


def _name_buffer(signal: Signal, index: int) -> str:
    return f"u_{signal.name}{f'_{index}' if signal.size > 1 else ''}_buffer"


def make_arbiter_check(expressions: PortExpressions, module: Module, count: Count) -> Check:
    """Return the check of an arbiter."""
    widths = list_registers(count.order, takes_whole_frames=count.whole, stream_count=len(count.terms))
    outputs = {name: f"{module.name}_{count.name}_{name}_o" for name in widths}
    last_flags = (
        [str(expressions.find_sample_bits(make_last_ref(term))) for term in count.terms]
        if count.whole
        else []
    )
    parameters = {
        "Streams": len(count.terms),
        "TurnWidth": widths.get("turn", 1),
        "Turns": write_bit(count.order == "turns"),
        "Whole": write_bit(count.whole),
    }
    ports = {
        **CLOCK_CONNECTIONS,
        "fire_i": expressions.write_fire(module, count.name),
        "valid_i": concatenate(expressions.write_valid_bit(term) for term in count.terms),
        "ready_i": concatenate(expressions.write_ready_bit(term) for term in count.terms),
        "others_i": concatenate(
            f"({expressions.write_other_consumer_condition(count, term)})" for term in count.terms
        ),
        "last_i": concatenate(last_flags) if last_flags else f"{len(count.terms)}'d0",
        "turn_i": outputs.get("turn", FALSE),
        "open_i": outputs.get("open", FALSE),
    }
    return Check("count_action_choice", module.name, count.name, parameters, ports)


ASSUMPTION_KIND = "assume"


def write_assumptions(expressions: PortExpressions) -> Iterator[str]:
    """Yield the assumptions of the text, for every cycle without reset."""
    for module in expressions.datapath.modules:
        for claim in module.claims:
            if claim.kind == ASSUMPTION_KIND:
                condition = expressions.formulas.write_operand(claim.holds)
                yield f"always_comb if (begun_q && !rst_i) assume ({condition} != 0);"


def select_claims(datapath: Datapath, module_name: str | None) -> frozenset[tuple[str, str]]:
    """Return (module, name) of the claims to prove: all claims except assumptions."""
    modules = [module for module in datapath.modules if module_name in {None, module.name}]
    return frozenset(
        (m.name, claim.name) for m in modules for claim in m.claims if claim.kind != ASSUMPTION_KIND
    )


def make_claim_checks(
    expressions: PortExpressions, chosen_claims: Collection[tuple[str, str]]
) -> Iterator[Check]:
    """Yield the checks of the chosen claims."""
    for module in expressions.datapath.modules:
        for claim in module.claims:
            if (module.name, claim.name) in chosen_claims:
                relation = "==" if claim.kind == "never" else "!="
                ports = {
                    "rst_i": "rst_i",
                    "begun_i": "begun_q",
                    "holds_i": f"{expressions.formulas.write_operand(claim.holds)} {relation} 0",
                }
                yield Check("count_action_claim", module.name, claim.name, {}, ports)
