"""`lightning calibrate`: the guided first run with a kit, step by step."""

from __future__ import annotations

import contextlib
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightning.cli.options import TWIN, AsJson, Device, Png, Shots
from lightning.cli.output import EXIT_ERROR, EXIT_OK, print_document
from lightning.errors import AddressError, CalibrationError, LightningError, MissingLibrary

if TYPE_CHECKING:
    from lightning.kit.calibration.document import Outcome
    from lightning.kit.calibration.guided import GuidedRun
    from lightning.kit.devices.identity import DeviceIdentity

ROLES = ("laser", "bias", "meter")
TWIN_INSTRUMENT = "bench"
"""Value of an instrument option that selects the simulated instrument of a twin."""
INDENT = " " * 20

Resource = str | None
Laser = Annotated[
    Resource,
    typer.Option(metavar="RESOURCE", help="VISA resource of a tunable laser; `bench`: the twin's own laser."),
]
Bias = Annotated[
    Resource,
    typer.Option(
        metavar="RESOURCE", help="VISA resource of the bias supply; `bench`: the twin's own supply."
    ),
]
Meter = Annotated[
    Resource,
    typer.Option(
        metavar="RESOURCE", help="VISA resource of an optical power meter; `bench`: the twin's own meter."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation (for scripts).")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("calibrate")(calibrate)


def calibrate(
    device: Device = TWIN,
    laser: Laser = None,
    bias: Bias = None,
    meter: Meter = None,
    shots: Shots = 4,
    png: Png = None,
    *,
    yes: Yes = False,
    as_json: AsJson = False,
) -> int:
    """Set up a kit step by step, measure its modulators, and save the calibration.

    Every step passes or fails, and reports its measured figure, the limit and a hint. Instruments are optional: a step
    whose instrument is missing is left to be done by hand. A twin has its own instruments. With sim:// only laser and
    meter are used by default, because this twin restarts with every command and loses the setting of its supply. The
    calibration is saved if all steps pass. For example: lightning calibrate --device sim://kit
    """
    from lightning.kit.calibration.guided import run_guided
    from lightning.kit.connection import connect
    from lightning.kit.devices.identity import read_identity

    soc = connect(device)
    device_identity = read_identity(soc)
    given_resources = {
        role: resource for role, resource in zip(ROLES, (laser, bias, meter), strict=True) if resource
    }
    resources = choose_resources(soc, given_resources, is_lasting=not device.startswith("sim://"))
    is_interactive = not yes and not as_json and sys.stdin.isatty()
    _confirm_changes(
        {role: resource for role, resource in given_resources.items() if resource != TWIN_INSTRUMENT},
        device_identity,
        is_interactive=is_interactive,
        is_confirmed=yes,
    )
    with open_instruments(resources, is_required=bool(given_resources)) as bench:
        run = run_guided(
            soc,
            instruments=bench,
            shots=shots,
            report=None if as_json else _print_outcome,
            turn_paddles=_turn_paddles if is_interactive and not device_identity.is_simulated else None,
        )
    saved_path = _save_results(run, png, device_identity)
    (_print_document if as_json else _print_end)(run, device_identity, saved_path, png)
    return EXIT_OK if run.passed else EXIT_ERROR


def choose_resources(soc: Any, given_resources: dict[str, str], *, is_lasting: bool) -> dict[str, str]:
    """Return VISA resources by role: those in `given_resources`, or without options the instruments of a twin.

    A twin's bias supply is included only if the state of the twin is `is_lasting`. Raise `AddressError` if an option is
    `TWIN_INSTRUMENT` and the device lacks the instrument.
    """
    list_twin_resources = getattr(soc, "bench", None)
    twin_resources = list_twin_resources() if soc.simulated and callable(list_twin_resources) else {}
    if not given_resources:
        return {role: resource for role, resource in twin_resources.items() if is_lasting or role != "bias"}
    for role, resource in given_resources.items():
        if resource == TWIN_INSTRUMENT and role not in twin_resources:
            raise AddressError(
                f"this device has no {role} of its own", hint=f"Give the VISA resource of your {role}"
            )
    return {
        role: twin_resources[role] if resource == TWIN_INSTRUMENT else resource
        for role, resource in given_resources.items()
    }


@contextlib.contextmanager
def open_instruments(resources: dict[str, str], *, is_required: bool) -> Iterator[Any]:
    """Open the instruments at these resources and yield their bench, or None without resources.

    Without PyVISA, raise `MissingLibrary` if `is_required`, else yield None. Raise the errors of the instruments.
    """
    instruments = None
    if resources:
        from lightning.kit.instruments import open_bench

        try:
            instruments = open_bench(resources)
        except MissingLibrary:
            if is_required:
                raise
    with instruments or contextlib.nullcontext() as bench:
        yield bench


def _confirm_changes(
    resources: dict[str, str], device_identity: DeviceIdentity, *, is_interactive: bool, is_confirmed: bool
) -> None:
    """Ask the user to confirm changes to instruments. They may be real even with a simulated kit.

    Raise `LightningError` if confirmation is needed but there is no terminal, and `typer.Abort` if the user declines.
    """
    if not resources or is_confirmed:
        return
    if not is_interactive:
        raise LightningError(
            f"{' and '.join(resources)} would be set, but there is no terminal to ask for confirmation",
            device=device_identity.name,
            hint="Pass --yes",
        )
    resource_lines = "\n".join(f"  {role}: {resource}" for role, resource in resources.items())
    typer.confirm(f"These instruments will be switched on and set:\n{resource_lines}\nContinue?", abort=True)


def _turn_paddles(read_brightness: Callable[[], float]) -> None:
    """Ask the user to turn the polarisation controller, and show the brightness until the user stops."""
    print("Turn the paddles of the polarisation controller until the reading is highest.")
    best_reading = 0.0
    while True:
        reading = read_brightness()
        best_reading = max(best_reading, reading)
        prompt = f"{INDENT}{reading:6.1%} of the converter (best {best_reading:.1%}). Enter reads again, d is done: "
        try:
            answer = input(prompt)
        except EOFError:
            return
        if answer.strip().lower().startswith("d"):
            return


def _save_results(run: GuidedRun, png: Path | None, device_identity: DeviceIdentity) -> Path | None:
    """Save the calibration if all steps passed, and return its path or None. Save the plot if there are sweeps."""
    from lightning.kit.calibration import store

    if png is not None and run.calibration is not None:
        from lightning.kit import plots
        from lightning.kit.plots import load_sweeps

        plots.save(plots.transfer_curves(load_sweeps(run.calibration, run.raw), device_identity), png)
    if not run.passed or run.calibration is None:
        return None
    try:
        return store.save(run.calibration, raw=run.raw)
    except OSError as error:
        raise CalibrationError(
            f"the calibration cannot be saved in {store.find_folder()} ({error.strerror})",
            device=device_identity.name,
            hint=f"Set {store.FOLDER_VARIABLE} to a writable folder",
        ) from error


def _print_outcome(outcome: Outcome) -> None:
    verdict = "skip" if outcome.skipped else "pass" if outcome.passed else "FAIL"
    _print_wrapped(f"{verdict}  {outcome.step:<13} {outcome.figure}; limit: {outcome.limit}")
    if outcome.hint:
        hint_label = "by hand" if outcome.skipped else "hint"
        _print_wrapped(f"{INDENT}{hint_label}: {outcome.hint}")


def _print_wrapped(line: str) -> None:
    width = min(shutil.get_terminal_size((110, 24)).columns, 130)
    print("\n".join(textwrap.wrap(line, width, subsequent_indent=INDENT, drop_whitespace=True)), flush=True)


def _print_end(
    run: GuidedRun, device_identity: DeviceIdentity, saved_path: Path | None, png: Path | None
) -> None:
    failed_steps = [outcome.step for outcome in run.outcomes if not outcome.passed]
    if failed_steps:
        print(f"{device_identity.label}: {', '.join(failed_steps)} failed; nothing was saved")
    else:
        print(f"{device_identity.label}: all {len(run.outcomes)} steps passed")
    for file in (saved_path, png if run.calibration is not None else None):
        if file is not None:
            print(f"written: {file}")


def _print_document(
    run: GuidedRun, device_identity: DeviceIdentity, saved_path: Path | None, png: Path | None
) -> None:
    document: dict[str, Any] = {
        "steps": [asdict(outcome) for outcome in run.outcomes],
        "saved": None if saved_path is None else str(saved_path),
        "written": [str(png)] if png is not None and run.calibration is not None else [],
    }
    failed_outcome = next((outcome for outcome in run.outcomes if not outcome.passed), None)
    if failed_outcome is not None:
        message = (
            f"step {failed_outcome.step!r} failed: {failed_outcome.figure}; required: {failed_outcome.limit}"
        )
        error: dict[str, object] = {
            "code": CalibrationError.code,
            "message": message,
            "device": device_identity.name,
            "hint": failed_outcome.hint,
        }
        document["error"] = error
    print_document(device_identity, document, is_ok=run.passed)
