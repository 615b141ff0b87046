"""The assertions of a proof: their modules, their properties, and the wires inside blocks that they read."""

from __future__ import annotations

import re

from fpga.count_action.actions.proof import HIDDEN_WIRE
from fpga.formal.properties import get_property, list_properties
from fpga.formal.specification import Specification


def find_subjects(specification: Specification, assertion: str) -> set[tuple[str, str]]:
    """Return the (module, property) pairs of an assertion; an assertion about targets or buffers has all modules."""
    instance, _, label = assertion.partition(".")
    check = specification.checks[instance]
    name = get_property(f"{check.block}.{label}").name
    modules = [check.module] if check.module else [module.name for module in specification.datapath.modules]
    return {(module, name) for module in modules}


def list_subjects(specification: Specification) -> set[tuple[str, str]]:
    """Return the (module, property) pairs of all assertions, with "" as the module for targets and buffers."""
    checks = specification.checks.values()
    return {(check.module, property_.name) for check in checks for property_ in list_properties(check.block)}


def list_assertions(specification: Specification, name: str) -> list[str]:
    """Return the assertions of the property `name`, as the prover names them."""
    return [
        f"{instance}.{assertion.partition('.')[2]}"
        for instance, check in specification.checks.items()
        for property_ in list_properties(check.block)
        if property_.name == name
        for assertion in property_.assertions
        if assertion.startswith(f"{check.block}.")
    ]


def find_targets_check(specification: Specification) -> str:
    """Return the instance that checks the targets in force."""
    checks = specification.checks.items()
    return next(name for name, check in checks if check.block == "count_action_targets")


def find_hidden_wires(specification: Specification) -> dict[str, int]:
    """Return the wires inside the top-level module that the proof reads, with their widths."""
    return {match[2]: int(match[1]) + 1 for match in re.finditer(HIDDEN_WIRE, specification.write_text())}
