"""Instances of modules in a datapath, and the values of their parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from fpga.count_action.defaults import DEFAULT_PARAMETER
from fpga.count_action.diagnostics import (
    Diagnostic,
    Report,
    SourceError,
    find_similar,
    make_diagnostic,
    quote,
    suggest_name,
)
from fpga.count_action.elaboration.arithmetic import (
    MAX_MAGNITUDE,
    evaluate,
    evaluate_range,
    list_indices,
    list_names,
)
from fpga.count_action.elaboration.externals import is_misspelling
from fpga.count_action.language.syntax import (
    ActionText,
    CountText,
    FileText,
    Index,
    ModuleText,
    Number,
    Operand,
    RangedOperand,
    Reference,
    UseText,
    WireText,
)
from fpga.count_action.model import Location

MAX_MODULES = 1024


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance of a module: its syntax tree, the values of its parameters, and the wires of its inputs."""

    name: str
    module_text: ModuleText
    parameter_values: Mapping[str, int]
    wires: Mapping[str, WireText]
    location: Location
    index_values: Mapping[str, int] = field(default_factory=dict)
    """The value of the index of a replicated instance."""


def make_instances(
    tree: FileText, imported_modules: Mapping[str, ModuleText], parameters: Mapping[str, int], report: Report
) -> list[Instance]:
    """Return the instances of a file in the order of its text. `parameters` are values from the caller."""
    local_modules = _index_modules({}, tree, report)
    instances: dict[str, Instance] = {}
    unused_names = dict.fromkeys(parameters)
    for statement in tree.statements:
        with report.catch_errors():
            new_instances: Iterable[Instance] = ()
            if isinstance(statement, ModuleText):
                new_instances = [
                    _bind_parameters(
                        statement, statement.name, {}, {}, parameters, statement.location, report
                    )
                ]
            elif isinstance(statement, UseText):
                new_instances = _make_replicas(
                    statement, {**imported_modules, **local_modules}, parameters, report
                )
            for instance in new_instances:
                if instance.name in instances and instances[instance.name].location != instance.location:
                    message = f"there is already a module {quote(instance.name)} at {instances[instance.name].location}"
                    raise SourceError(instance.location, message, "Give this one another name.")
                instances[instance.name] = instance
                for name in instance.parameter_values:
                    unused_names.pop(name, None)
    _report_unused_parameters(unused_names, instances, tree, report)
    return list(instances.values())


def _index_modules(modules: dict[str, ModuleText], tree: FileText, report: Report) -> dict[str, ModuleText]:
    for module in tree.modules():
        earlier_module = modules.setdefault(module.name, module)
        if earlier_module is not module:
            message = f"there is already a module {quote(module.name)} at {earlier_module.location}"
            report.add_error(make_diagnostic(module.location, message, "Give this one another name."))
    return modules


def _report_unused_parameters(
    unused_names: Mapping[str, None], instances: Mapping[str, Instance], tree: FileText, report: Report
) -> None:
    parameter_names = list(
        dict.fromkeys(name for instance in instances.values() for name in instance.parameter_values)
    )
    for name in unused_names:
        first_location = next((statement.location for statement in tree.statements), None)
        file = first_location.file if first_location else "<text>"
        message = f"no module has a parameter {quote(name)}, but the caller gives it a value"
        report.errors.append(
            Diagnostic(file, 1, 1, message, suggest_name(name, parameter_names) or "Remove it.")
        )


def _make_replicas(
    use: UseText, modules: Mapping[str, ModuleText], parameters: Mapping[str, int], report: Report
) -> Iterator[Instance]:
    """Yield the instances of a `use`: one, or one for every value of its index."""
    if use.index is None:
        yield _instantiate(use, modules, parameters, {}, report)
        return
    if use.index.name not in list_names(use.instance.index):
        message = f"the index {quote(use.index.name)} is not used in the name of the instances"
        raise SourceError(use.index.location, message, f"Write {use.instance.name}[{use.index.name}].")
    for value in evaluate_range(use.index, {}):
        yield _instantiate(use, modules, parameters, {use.index.name: value}, report)


def _instantiate(
    use: UseText,
    modules: Mapping[str, ModuleText],
    parameters: Mapping[str, int],
    index_values: Mapping[str, int],
    report: Report,
) -> Instance:
    module_text = modules.get(use.module)
    if module_text is None:
        hint = suggest_name(use.module, modules) or 'Import the file that defines it: import "FILE.ca";'
        raise SourceError(use.location, f"no module {quote(use.module)} in this file or its imports", hint)
    arguments: dict[str, int] = {}
    for argument in use.arguments:
        if argument.name in arguments:
            raise SourceError(argument.location, f"{quote(argument.name)} is given twice", "Remove one.")
        arguments[argument.name] = evaluate(argument.value, index_values)
    wires: dict[str, WireText] = {}
    for wire in use.wires:
        if wire.name in wires:
            raise SourceError(wire.location, f"{quote(wire.name)} is wired twice", "Remove one.")
        wires[wire.name] = wire
    name = use.instance.name
    if use.instance.index is not None:
        name = f"{name}_{evaluate(use.instance.index, index_values)}"
    instance = replace(
        _bind_parameters(module_text, name, arguments, wires, parameters, use.location, report),
        index_values=index_values,
    )
    for argument in use.arguments:
        if argument.name not in instance.parameter_values:
            hint = suggest_name(argument.name, instance.parameter_values) or "It has no parameters."
            raise SourceError(
                argument.location, f"{quote(use.module)} has no parameter {quote(argument.name)}", hint
            )
    return instance


def _bind_parameters(
    module_text: ModuleText,
    name: str,
    arguments: Mapping[str, int],
    wires: Mapping[str, WireText],
    parameters: Mapping[str, int],
    location: Location,
    report: Report,
) -> Instance:
    given_values = {**parameters, **arguments}
    values: dict[str, int] = {}
    for parameter in module_text.parameters:
        if parameter.name in values:
            raise SourceError(
                parameter.location, f"parameter {quote(parameter.name)} is declared twice", "Remove one."
            )
        if parameter.name in given_values:
            values[parameter.name] = given_values[parameter.name]
        elif parameter.default is not None:
            values[parameter.name] = evaluate(parameter.default, values)
        else:
            raise SourceError(
                parameter.location,
                f"parameter {quote(parameter.name)} of module {quote(module_text.name)} has no value",
                f"Give it one: -P {parameter.name}=16, or `{parameter.name} = 16` here.",
            )
    for parameter_name, parameter_location in _infer_parameters(module_text).items():
        if parameter_name not in values:
            values[parameter_name] = given_values.get(parameter_name, DEFAULT_PARAMETER)
            origin_text = "as given" if parameter_name in given_values else "by default"
            value_text = f"{values[parameter_name]} {origin_text}"
            message = f"{quote(parameter_name)} is assumed to be a parameter of {quote(name)}: {value_text}"
            report.inferences.append(make_diagnostic(parameter_location, message))
            _warn_if_misspelt(parameter_name, module_text, values, parameter_location, report)
    for key, value in values.items():
        if abs(value) > MAX_MAGNITUDE:
            raise SourceError(
                location, f"parameter {quote(key)} is {value}, which is too large", "Choose a smaller value."
            )
    return Instance(name, module_text, values, wires, location)


def _warn_if_misspelt(
    parameter_name: str,
    module_text: ModuleText,
    values: Mapping[str, int],
    location: Location,
    report: Report,
) -> None:
    """Warn if an inferred parameter is similar to another parameter: it may be misspelt."""
    similar_name = find_similar(parameter_name, [*values, *_infer_parameters(module_text)])
    if similar_name and is_misspelling(parameter_name, similar_name):
        message = (
            f"{quote(parameter_name)} is assumed to be a parameter, and is similar to {quote(similar_name)}"
        )
        hint = (
            f"Write {quote(similar_name)} if that is intended; "
            f"otherwise declare `module {module_text.name} ({parameter_name} = ...)`."
        )
        report.warnings.append(make_diagnostic(location, message, hint))


def _infer_parameters(module_text: ModuleText) -> dict[str, Location]:
    """Return the undeclared parameters and their first uses. Such names are used only as bounds and constants."""
    non_parameter_names = set(_find_other_names(module_text))
    parameters: dict[str, Location] = {}
    for number in _find_constant_numbers(module_text):
        for name in list_names(number):
            if name not in non_parameter_names:
                parameters.setdefault(name, number.location)
    return parameters


def _find_constant_numbers(module_text: ModuleText) -> Iterator[Number]:
    for input_text in module_text.inputs:
        if input_text.index_range:
            yield from (input_text.index_range.low, input_text.index_range.high)
    for target in module_text.targets:
        if target.value is not None:
            yield target.value
    for memory in module_text.memories:
        yield from (number for number in memory.numbers.values() if number is not None)
    for table in module_text.tables:
        yield from (table.index_range.low, table.index_range.high)
        yield from (entry for entry in table.entries if entry is not None)
    for index in _find_indices(module_text):
        yield from (index.low, index.high)


def _find_indices(module_text: ModuleText) -> Iterator[Index]:
    for count in module_text.counts:
        yield from _skip_absent(count.index, *(term.index for term in count.terms))
        for condition in count.conditions:
            yield from list_indices(condition.operand)
    for action in module_text.actions:
        yield from _skip_absent(action.index)
        for sample in action.verb_text.samples:
            yield from list_indices(sample)
    for claim in module_text.claims:
        yield from list_indices(claim.operand)


def _skip_absent(*indices: Index | None) -> Iterator[Index]:
    return (index for index in indices if index is not None)


def _find_other_names(module_text: ModuleText) -> Iterator[str]:
    """Yield the names that cannot be parameters: indices, inputs, labels, and names in other numbers and terms."""
    yield from (index.name for index in _find_indices(module_text))
    for input_text in module_text.inputs:
        yield input_text.name
        yield from list_names(input_text.width)
        yield from list_names(input_text.lanes)
    for target in module_text.targets:
        yield from list_names(target.width)
    for memory in module_text.memories:
        yield from list_names(memory.width)
    for count in module_text.counts:
        yield from _find_names_of_count(count)
    for action in module_text.actions:
        yield from _find_names_of_action(action)
    for claim in module_text.claims:
        yield from _find_reference_names(claim.operand)


def _find_names_of_count(count: CountText) -> Iterator[str]:
    if count.label:
        yield count.label.name
        yield from list_names(count.label.index)
    for term in count.terms:
        yield from list_names(term.value)
    for condition in count.conditions:
        yield from _find_reference_names(condition.operand)
    yield from list_names(count.width)


def _find_names_of_action(action: ActionText) -> Iterator[str]:
    verb_text = action.verb_text
    for label in (action.count_label, verb_text.name):
        if label:
            yield label.name
            yield from list_names(label.index)
    for sample in verb_text.samples:
        yield from _find_reference_names(sample)
    for number in (verb_text.width, verb_text.cleared, *verb_text.numbers.values()):
        yield from list_names(number)


def _find_reference_names(operand: Operand) -> Iterator[str]:
    """Yield the names in a reference. Names in a formula do not count: they may be parameters or targets."""
    if isinstance(operand, RangedOperand):
        yield from _find_reference_names(operand.value)
    elif isinstance(operand, Reference):
        yield from list_names(operand)
