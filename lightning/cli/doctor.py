"""`lightning doctor`: what is wrong here, and the hint."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lightning.cli.options import AsJson
from lightning.cli.output import DONE, ERROR, print_document

if TYPE_CHECKING:
    from lightning import doctor as facts

MaybeDevice = Annotated[
    str | None,
    typer.Option(
        "--device", "-d", metavar="ADDRESS", envvar="LIGHTBED_DEVICE", help="Look at this device, too."
    ),
]
WORDS = {"ok": "ok  ", "warning": "warn", "bad": "BAD "}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(device: MaybeDevice = None, *, as_json: AsJson = False) -> int:
    """Look at this environment, and at a device if one is named; exit code 1 when something is bad.

    The device runs one dark acquisition and, if it is calibrated, the products with which drift is watched; nothing
    is changed. For example: lightning doctor --device sim://kit
    """
    findings = []
    for finding in _all(device):
        findings.append(finding)
        if not as_json:
            hint = f"\n      {finding.hint}" if finding.hint else ""
            print(f"{WORDS[finding.state]}  {finding.name}: {finding.found}{hint}", flush=True)
    well = all(each.state != "bad" for each in findings)
    if as_json:
        print_document(None, {"findings": [asdict(each) for each in findings]}, ok=well)
    return DONE if well else ERROR


def _all(device: str | None) -> Iterable[facts.Finding]:
    from lightning import doctor as facts

    yield from facts.environment()
    if device is not None:
        yield from facts.device(device)
