"""Resolution of names: each refers to an output of a module, a stored value, or an external input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fpga.count_action.actions import VERBS
from fpga.count_action.diagnostics import (
    Report,
    SourceError,
    explain_memory_in_formula,
    make_diagnostic,
    quote,
    suggest_name,
)
from fpga.count_action.elaboration.choices import find_last_flags
from fpga.count_action.elaboration.externals import ExternalInputs, find_first_lane
from fpga.count_action.elaboration.flat import (
    FlatAction,
    FlatFormula,
    FlatInput,
    FlatModule,
    FlatOperand,
    FlatReference,
    Output,
    StoredValue,
    list_references,
)
from fpga.count_action.elaboration.formulas import END_SIGNALS
from fpga.count_action.model import ActionKind, Location


class NameTable:
    """Outputs and external inputs of a datapath, by the names that its modules use."""

    def __init__(self, modules: list[FlatModule], inputs: list[FlatInput], report: Report) -> None:
        self.modules = {module.name: module for module in modules}
        self.external_inputs = ExternalInputs()
        self.drivers: dict[Output, FlatAction] = {}
        """The first action that drives each output."""
        self.count_names = {
            module.name: frozenset(count.name for count in module.counts) for module in modules
        }
        self._file_inputs = inputs
        self._report = report
        self._lanes_by_output: dict[Output, set[int]] = {}
        self._module_by_output: dict[str, str] = {}
        self._declared_names = {
            module.name: frozenset(_find_declared_names(module, inputs)) for module in modules
        }
        for module in modules:
            for action in module.actions:
                if VERBS[action.verb].kind.drives:
                    self.drivers.setdefault(Output(module.name, action.name), action)
                    self._module_by_output.setdefault(action.name, module.name)

    def infer_inputs(self) -> None:
        """Determine every external input. Raise `CountActionError` with all errors."""
        self._record_inputs()
        self._report.raise_errors()
        self.external_inputs.infer_signals(self._report, [output.name for output in self.drivers])
        self._report.raise_errors()

    def find_first_lane(self, output: Output) -> int:
        """Return the number of the first lane of an output: 0 or 1."""
        return find_first_lane(self._lanes_by_output.get(output, set()))

    # ------------------------------------------------------------------------------ declarations and uses

    def _record_inputs(self) -> None:
        for file_input in self._file_inputs:
            with self._report.catch_errors():
                self.external_inputs.declare(file_input)
        for module in self.modules.values():
            self._record_declarations(module)
            for reference in self._find_references(module):
                with self._report.catch_errors():
                    self._record_use(module, reference)
            self._report_unknown_wires(module)
        for module in self.modules.values():
            for claim in module.claims:
                for reference in self._find_signals(module, claim.formula):
                    with self._report.catch_errors():
                        self._check_input_in_hardware(module, reference)

    def _check_input_in_hardware(self, module: FlatModule, reference: FlatReference) -> None:
        """Raise `SourceError` if only a property uses an input: a property adds no hardware, hence no port."""
        resolved_signal = self.resolve(module, reference)
        if isinstance(resolved_signal, FlatReference) and resolved_signal.name not in self.external_inputs:
            message = f"a property reads {quote(str(reference))}, which nothing else uses"
            counts = self.count_names[module.name]
            hint = (
                suggest_name(resolved_signal.name, [*self.external_inputs.list_names(), *counts])
                or "Declare it in `inputs`."
            )
            raise SourceError(reference.location, message, hint)

    def _record_declarations(self, module: FlatModule) -> None:
        declared_inputs: dict[str, FlatInput] = {}
        for input_declaration in module.inputs:
            with self._report.catch_errors():
                if input_declaration.name in declared_inputs:
                    first_location = declared_inputs[input_declaration.name].location
                    message = (
                        f"input {quote(input_declaration.name)} is declared twice, first at {first_location}"
                    )
                    raise SourceError(input_declaration.location, message, "Remove one.")
                declared_inputs[input_declaration.name] = input_declaration
                self._check_name_is_free(module, input_declaration.name, input_declaration.location)
                if input_declaration.part_of in module.wires:
                    self._declare_wired_end_signal(module, input_declaration)
                    continue
                if input_declaration.name not in module.wires:
                    self.external_inputs.declare(input_declaration)
                    continue
                reference, wire = module.wires[input_declaration.name]
                if reference.module and input_declaration.is_buffered:
                    message = (
                        f"{quote(input_declaration.name)} is buffered, but wired to {reference}, which a module"
                        " drives"
                    )
                    hint = "Remove `buffered` here; use it for external streams only."
                    raise SourceError(wire.location, message, hint)
                if not reference.module:
                    external_input = replace(
                        input_declaration,
                        name=reference.name,
                        index_range=input_declaration.index_range if reference.index is None else None,
                    )
                    self.external_inputs.declare(external_input, element_index=reference.index)

    def _declare_wired_end_signal(self, module: FlatModule, end_input: FlatInput) -> None:
        """Declare the external `last` or `keep` of a wired stream, unless a module drives it."""
        stream_reference, _ = module.wires[end_input.part_of]
        name = f"{stream_reference.label}{end_input.name.removeprefix(end_input.part_of)}"
        if stream_reference.module is None:
            self.external_inputs.declare(replace(end_input, name=name, part_of=stream_reference.label))

    def _check_name_is_free(self, module: FlatModule, name: str, location: Location) -> None:
        if Output(module.name, name) in self.drivers or name in self.count_names[module.name]:
            message = f"{quote(name)} is an input of {quote(module.name)} and also its count or output"
            raise SourceError(location, message, "Rename one of them.")
        if name in module.parameters:
            raise SourceError(
                location, f"{quote(name)} is both an input and a parameter", "Rename one of them."
            )

    def _record_use(self, module: FlatModule, reference: FlatReference) -> None:
        resolved_signal = self.resolve(module, reference)
        if isinstance(resolved_signal, Output):
            if reference.lane is not None:
                self._lanes_by_output.setdefault(resolved_signal, set()).add(reference.lane)
            return
        if resolved_signal.name not in self._declared_names[module.name] | _find_wired_names(module):
            self._check_has_no_other_driver(module, resolved_signal)
        self.external_inputs.record_use(resolved_signal)

    def _check_has_no_other_driver(self, module: FlatModule, reference: FlatReference) -> None:
        if reference.name in self.modules:
            outputs = [output.name for output in self.drivers if output.module == reference.name]
            hint = f"Write {reference.name}.{outputs[0]}." if outputs else "It drives nothing."
            raise SourceError(reference.location, f"{quote(reference.name)} is a module, not a signal", hint)
        owner = self._module_by_output.get(reference.label)
        if owner is not None and reference.name not in self.external_inputs:
            message = (
                f"{quote(str(reference))} is not declared; module {quote(owner)} drives a signal of that name"
            )
            hint = f"Write {owner}.{reference.label}, or declare an input of that name in `inputs`."
            raise SourceError(reference.location, message, hint)

    def _report_unknown_wires(self, module: FlatModule) -> None:
        names = dict.fromkeys([signal.name for signal in module.inputs])
        names |= dict.fromkeys(
            reference.name for reference in self._find_references(module) if reference.module is None
        )
        for name, (_, wire) in module.wires.items():
            if name not in names:
                message = f"{quote(module.name)} has no input {quote(name)} to wire"
                self._report.add_error(make_diagnostic(wire.location, message, suggest_name(name, names)))

    def _find_references(self, module: FlatModule) -> Iterator[FlatReference]:
        """Yield the references of a module to signals, except those in its properties."""
        for count in module.counts:
            yield from (*count.terms, *count.subtracted_terms)
            for formula in (count.target_formula, count.bound):
                if formula is not None:
                    yield from self._find_signals(module, formula)
            for operand, _ in count.conditions:
                yield from self._find_signals(module, operand)
        for action in module.actions:
            for operand in action.samples:
                yield from self._find_signals(module, operand)
            yield from find_last_flags(module, action)

    def _find_signals(self, module: FlatModule, operand: FlatOperand) -> Iterator[FlatReference]:
        in_formula = isinstance(operand, FlatFormula)
        for reference in list_references(operand):
            if self.find_stored_value(module, reference, in_formula=in_formula) is None:
                yield reference

    # ------------------------------------------------------------------------------------------ resolution

    def find_stored_value(
        self, module: FlatModule, reference: FlatReference, *, in_formula: bool
    ) -> StoredValue | None:
        """Return the count or the target that a reference names, or None if it names a signal.

        `in_formula` is true inside a formula. Outside, a lone name may refer to a count, but not to a target, because
        older texts use such a name for a flag.
        """
        owner = module if reference.module is None else self.modules.get(reference.module)
        if owner is None or reference.suffix or Output(owner.name, reference.label) in self.drivers:
            return None
        if owner is module and (
            reference.name in self._declared_names[module.name] or reference.name in module.wires
        ):
            return None
        if reference.label in self.count_names[owner.name]:
            return StoredValue("count", owner.name, reference.label)
        if in_formula and any(target.name == reference.label for target in owner.targets):
            return StoredValue("target", owner.name, reference.label)
        return None

    def resolve(self, module: FlatModule, reference: FlatReference) -> Output | FlatReference:
        """Return the output that a reference names, or a reference to the external input under its own name.

        Raise `SourceError` if the name is a count or a parameter, or does not exist.
        """
        if (end_output := self._resolve_end_signal(module, reference)) is not None:
            return end_output
        if reference.module is not None:
            return self.resolve_output(reference)
        own_output = Output(module.name, reference.label)
        if own_output in self.drivers and VERBS[self.drivers[own_output].verb].kind is ActionKind.MEMORY:
            raise SourceError(reference.location, *explain_memory_in_formula(reference.name))
        if own_output in self.drivers and not (
            reference.index is not None and reference.name in self._declared_names[module.name]
        ):
            return own_output
        if reference.name in module.wires:
            return self._follow_wire(module, reference)
        if reference.name in self._declared_names[module.name]:
            return reference
        if reference.label in self.count_names[module.name]:
            raise _make_no_signal_error(reference)
        self._check_is_signal(module, reference)
        if reference.name in module.parameters and reference.index is None and not reference.suffix:
            raise SourceError(
                reference.location, f"{quote(reference.name)} is a parameter, not a signal", "Name a signal."
            )
        return reference

    def _check_is_signal(self, module: FlatModule, reference: FlatReference) -> None:
        """Raise `SourceError` if an undeclared name is a target of the module, or an element of one of its values.

        Such a name would become an external input that has nothing to do with the value.
        """
        name = reference.name
        if reference.suffix:
            return
        is_target = any(target.name == name for target in module.targets)
        hint = f"Write `{name} != 0` or `max({name}, 0)`; for an input of that name, declare `flag {name}`."
        if is_target and reference.index is None:
            message = f"{quote(name)} is a target, and a target alone is neither a condition nor a sample"
            raise SourceError(reference.location, message, hint)
        is_value = (
            is_target or name in self.count_names[module.name] or Output(module.name, name) in self.drivers
        )
        if is_value and reference.index is not None:
            message = (
                f"{quote(name)} is one value of {quote(module.name)} and has no element {reference.index}"
            )
            raise SourceError(reference.location, message, hint if is_target else f"Write {name}.")

    def _resolve_end_signal(
        self, module: FlatModule, reference: FlatReference
    ) -> Output | FlatReference | None:
        """Return the signal of `x.last` or `x.keep`, or None for other references (R18).

        Raise `SourceError` if stream `x` has no such field.
        """
        stream, name = reference.module, f"{reference.module}_{reference.name}"
        if stream is None or stream in self.modules or reference.name not in END_SIGNALS:
            return None
        if Output(module.name, name) in self.drivers:
            return Output(module.name, name)
        if stream in module.wires:
            stream_reference, _ = module.wires[stream]
            name = f"{stream_reference.label}_{reference.name}"
            if stream_reference.module is not None:
                return self.resolve_output(
                    replace(reference, name=name, module=stream_reference.module, index=None)
                )
            return replace(reference, name=name, module=None)
        if name in self._declared_names[module.name]:
            return replace(reference, name=name, module=None)
        message = f"the beats of {quote(stream)} have no `{reference.name}`"
        hint = f"Declare it: stream {stream} of 4 lanes of 8 bits with last and keep."
        raise SourceError(reference.location, message, hint)

    def count_kept_lanes(self, module: FlatModule, reference: FlatReference) -> int:
        """Return the number of lanes, hence bits, of `x.keep` used as a number; 0 for any other reference."""
        if reference.module is None or reference.name != "keep" or reference.index is not None:
            return 0
        resolved_signal = self.resolve(module, reference)
        signal = (
            None
            if isinstance(resolved_signal, Output)
            else self.external_inputs.find_signal(resolved_signal.name)
        )
        return signal.size if signal is not None and signal.size > 1 else 0

    def resolve_output(self, reference: FlatReference) -> Output:
        """Return the output of another module that a reference names. Raise `SourceError` if there is none."""
        assert reference.module is not None
        if reference.module not in self.modules:
            name = reference.module
            hint = suggest_name(name, self.modules)
            if name in self.external_inputs:
                parts = ", ".join(f"{name}.{part}" for part in ("valid", "data", "last", "keep"))
                hint = f"{quote(name)} is an input. Of a stream there are {parts}."
            raise SourceError(reference.location, f"there is no module {quote(reference.module)}", hint)
        output = Output(reference.module, reference.label)
        if output in self.drivers:
            if VERBS[self.drivers[output].verb].kind is ActionKind.MEMORY:
                message = f"{quote(str(reference))} is a memory, which only its module reads"
                hint = (
                    f"Write `read {reference.name}[ADDRESS] as NAME` there, and {reference.module}.NAME here."
                )
                raise SourceError(reference.location, message, hint)
            return output
        if reference.label in self.count_names[reference.module]:
            raise _make_no_signal_error(reference)
        outputs = [
            other_output.name for other_output in self.drivers if other_output.module == reference.module
        ]
        hint = suggest_name(reference.label, outputs) or "It drives nothing."
        raise SourceError(
            reference.location,
            f"module {quote(reference.module)} does not drive {quote(reference.label)}",
            hint,
        )

    def _follow_wire(self, module: FlatModule, reference: FlatReference) -> Output | FlatReference:
        wired_reference, wire = module.wires[reference.name]
        if wired_reference.suffix:
            message = f"a wire carries the whole stream, not `.{wired_reference.suffix}` alone"
            raise SourceError(wired_reference.location, message, f"Remove `.{wired_reference.suffix}`.")
        is_single = wired_reference.module is not None or wired_reference.index is not None
        if is_single and reference.index not in {None, 0, 1}:
            message = (
                f"{quote(reference.name)} is wired to {wired_reference}, a single signal,"
                f" but its element {reference.index} is used"
            )
            raise SourceError(
                wire.location, message, "Wire it to an external input that has as many elements."
            )
        if wired_reference.module is not None:
            return self.resolve_output(wired_reference)
        index = reference.index if wired_reference.index is None else wired_reference.index
        return replace(reference, name=wired_reference.name, index=index)


def _make_no_signal_error(reference: FlatReference) -> SourceError:
    message = f"{quote(str(reference))} is a count; its value is not a signal"
    return SourceError(
        reference.location, message, "Use what its actions drive: a pulse, a flag or a number."
    )


def _find_declared_names(module: FlatModule, file_inputs: list[FlatInput]) -> Iterator[str]:
    """Return the names of the inputs that a module or its file declares."""
    return (signal.name for signal in (*module.inputs, *file_inputs))


def _find_wired_names(module: FlatModule) -> set[str]:
    return {reference.name for reference, _ in module.wires.values()}
