"""`lightning doctor`: checks of the environment and of a device, with hints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lightning.cli.options import AsJson
from lightning.cli.output import EXIT_ERROR, EXIT_OK, print_document

if TYPE_CHECKING:
    from lightning import doctor as checks

MaybeDevice = Annotated[
    str | None,
    typer.Option(
        "--device", "-d", metavar="ADDRESS", envvar="LIGHTBED_DEVICE", help="Also check this device."
    ),
]
STATE_LABELS = {"ok": "ok  ", "warning": "warn", "bad": "BAD "}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(device: MaybeDevice = None, *, as_json: AsJson = False) -> int:
    """Check this environment, and a device if --device is given; exit code 1 if a check fails.

    The device runs one acquisition without light. If the device is calibrated, it also measures known products, whose
    errors show drift. No setting is changed. For example: lightning doctor --device sim://kit
    """
    findings = []
    for finding in _find_all(device):
        findings.append(finding)
        if not as_json:
            hint = f"\n      {finding.hint}" if finding.hint else ""
            print(f"{STATE_LABELS[finding.state]}  {finding.name}: {finding.found}{hint}", flush=True)
    all_ok = all(finding.state != "bad" for finding in findings)
    if as_json:
        print_document(None, {"findings": [asdict(finding) for finding in findings]}, is_ok=all_ok)
    return EXIT_OK if all_ok else EXIT_ERROR


def _find_all(device: str | None) -> Iterable[checks.Finding]:
    from lightning import doctor as checks

    yield from checks.inspect_environment()
    if device is not None:
        yield from checks.inspect_device(device)
