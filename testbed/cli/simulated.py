"""`testbed sim up|down|status`: a simulated lab that stays up between commands."""

from __future__ import annotations

from typing import Annotated

import typer

from testbed.cli.options import AsJson, HostsMode, LabFile
from testbed.cli.output import DONE, print_json, print_lines, print_table
from testbed.lab.inventory import load_lab
from testbed.lab.simulated import lab_down, lab_status, start_lab

app = typer.Typer(help="Simulated labs: start, stop, list.")


@app.command()
def up(lab_file: LabFile, hosts: HostsMode = "auto", as_json: AsJson = False) -> int:
    """Start the simulated lab of a lab file, at the lab file's own addresses; returns when it is ready."""
    lab = start_lab(load_lab(lab_file), hosts=hosts, detached=True)
    if as_json:
        print_json(
            {"lab_id": lab.lab_id, "simulated": True, "hosts": lab.hosts, "reason": lab.reason}
            | {"subnet": str(lab.lab.management), "pid": lab.pid, "control": dict(lab.control)}
        )
        return DONE
    reason = f" ({lab.reason})" if lab.reason else ""
    print_lines(
        [
            f"SIMULATED lab {lab.lab.name} is up: {lab.lab_id}, hosts: {lab.hosts}{reason}",
            *(f"  control of {name}: {address}" for name, address in lab.control.items()),
            f"next: testbed apply {lab_file}   end it: testbed sim down {lab.lab_id}",
        ]
    )
    return DONE


@app.command()
def down(
    lab_ids: Annotated[list[str] | None, typer.Argument(metavar="[LAB_ID]...", help="Labs to end.")] = None,
    all_labs: Annotated[bool, typer.Option("--all", help="Also labs whose supervisor is alive.")] = False,
    as_json: AsJson = False,
) -> int:
    """Remove labs whose supervisor is gone; a living one only when named or with --all."""
    before = {entry["lab_id"] for entry in lab_status()}
    lab_down(lab_ids or (), all_labs=all_labs)
    left = {entry["lab_id"] for entry in lab_status()}
    if as_json:
        print_json({"removed": sorted(before - left), "left": sorted(left)})
    else:
        print_lines([f"removed {lab_id}" for lab_id in sorted(before - left)] or ["nothing to remove"])
        print_lines([f"left {lab_id}: its supervisor is alive (--all ends it too)" for lab_id in sorted(left)])
    return DONE


@app.command()
def status(as_json: AsJson = False) -> int:
    """List the simulated labs of this machine, living or left over."""
    labs = lab_status()
    if as_json:
        print_json({"labs": labs})
    elif not labs:
        print_lines(["no simulated labs"])
    else:
        columns = sorted({key for entry in labs for key in entry})
        print_table("Simulated labs", columns, [[entry.get(key, "") for key in columns] for entry in labs])
    return DONE
