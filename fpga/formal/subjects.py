"""Subjects of the assertions of a proof: modules, properties, and wires inside the datapath."""

from __future__ import annotations

import re

from fpga.count_action.actions.proof import HIDDEN
from fpga.formal.properties import property_of
from fpga.formal.specification import Specification


def subjects(specification: Specification, assertion: str) -> set[tuple[str, str]]:
    """Return the modules and properties that an assertion is about; targets are of every module."""
    instance, _, label = assertion.partition(".")
    check = specification.checks[instance]
    name = property_of(f"{check.block}.{label}").name
    modules = [check.module] if check.module else [each.name for each in specification.datapath.modules]
    return {(module, name) for module in modules}


def targets_check(specification: Specification) -> str:
    """Return the name of the checks that see the targets in force."""
    checks = specification.checks.items()
    return next(name for name, check in checks if check.block == "count_action_targets")


def find_hidden_wires(specification: Specification) -> dict[str, int]:
    """Return the wires inside the top that the proof looks at, with their widths."""
    return {found[2]: int(found[1]) + 1 for found in re.finditer(HIDDEN, specification.text())}
