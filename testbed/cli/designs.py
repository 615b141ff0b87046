"""The topology that a command means: the one that its options ask for, or that of a plan file."""

from __future__ import annotations

from pathlib import Path

from testbed.cli.options import parse_demands
from testbed.design.topology.strides import Method
from testbed.errors import PlanFileError
from testbed.lab.inventory import load_lab
from testbed.lab.model import Lab
from testbed.lab.simulated.lifecycle import find_running
from testbed.operate.session import Design, design_for, design_of_plan, lab_of_plan


def running_lab_and_design(
    lab_file: Path, plan_file: Path | None, *, simplex: bool, method: Method, demand: list[str] | None
) -> tuple[Lab, Design]:
    """Return the lab of a file as it runs, and its design. Raises what `chosen_design` raises, and `LabFileError`."""
    lab = find_running(load_lab(lab_file))
    return chosen_design(lab, plan_file, simplex=simplex, method=method, demand=demand)


def chosen_design(
    lab: Lab,
    plan_file: Path | None,
    *,
    simplex: bool,
    method: Method,
    demand: list[str] | None,
) -> tuple[Lab, Design]:
    """Return the design, and the hosts of the lab that it is for: all, or those that the plan names.

    Raises `PlanFileError` when a plan is given beside options that ask for another topology, or does not fit.
    """
    if plan_file is None:
        return lab, design_for(lab, simplex=simplex, method=method, demands=parse_demands(demand))
    if simplex or demand or method != "geometric":
        raise PlanFileError(
            f"--plan {plan_file} says which topology is meant: leave out --simplex, --method and --demand"
        )
    from testbed.design.plans.file import read_plan  # with all workloads that a plan may be for

    plan = read_plan(plan_file)
    here = lab_of_plan(lab, plan)
    return here, design_of_plan(here, plan)
