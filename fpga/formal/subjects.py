"""Modules, properties and hidden wires of the assertions of a proof."""

from __future__ import annotations

import re

from fpga.count_action.actions.proof import HIDDEN
from fpga.formal.properties import get_property, list_properties
from fpga.formal.specification import Specification


def subjects(specification: Specification, assertion: str) -> set[tuple[str, str]]:
    """Return the (module, property) pairs of an assertion. Targets and buffers belong to every module."""
    instance, _, label = assertion.partition(".")
    check = specification.checks[instance]
    name = get_property(f"{check.block}.{label}").name
    modules = [check.module] if check.module else [module.name for module in specification.datapath.modules]
    return {(module, name) for module in modules}


def list_subjects(specification: Specification) -> set[tuple[str, str]]:
    """Return the (module, property) pairs of a specification. The module is "" for targets and buffers."""
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
    """Return the instance name of the check of the targets in force."""
    checks = specification.checks.items()
    return next(name for name, check in checks if check.block == "count_action_targets")


def find_hidden_wires(specification: Specification) -> dict[str, int]:
    """Return the wires inside the top that the proof reads, with their widths."""
    return {match[2]: int(match[1]) + 1 for match in re.finditer(HIDDEN, specification.text())}
