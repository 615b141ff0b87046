"""`testbed doctor`: can this machine run a lab, and if not, what is the hint."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.completion import lab_files
from testbed.cli.options import AsJson
from testbed.cli.output import DONE, ERROR, print_json, print_lines


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(
    lab_file: Annotated[
        Path | None,
        typer.Argument(metavar="[LAB]", help="Also check this lab file.", autocompletion=lab_files),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Check this machine, and a lab file if given; exit code 1 when something must be repaired."""
    from testbed.lab.checkup import check_lab, check_machine
    from testbed.lab.inventory import load_lab

    checks = [*check_machine(), *(check_lab(load_lab(lab_file)) if lab_file else ())]
    well = all(check.ok for check in checks)
    if as_json:
        print_json({"ok": well, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            hint = "" if check.ok else f"\n      {check.hint}"
            print_lines([f"{'ok  ' if check.ok else 'BAD '}  {check.name}: {check.found}{hint}"])
    return DONE if well else ERROR
