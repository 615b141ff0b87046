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
from lightning.cli.output import DONE, ERROR, print_document
from lightning.errors import AddressError, CalibrationError, LightningError, MissingLibrary

if TYPE_CHECKING:
    from lightning.kit.calibration.document import Outcome
    from lightning.kit.calibration.guided import GuidedRun
    from lightning.kit.devices.identity import DeviceIdentity

ROLES = ("laser", "bias", "meter")
OWN = "bench"
"""In place of a resource: the instrument that a twin brings along."""
INDENT = " " * 20

Resource = str | None
Laser = Annotated[
    Resource,
    typer.Option(metavar="RESOURCE", help="VISA resource of a tunable laser; bench: the twin's own."),
]
Bias = Annotated[
    Resource,
    typer.Option(metavar="RESOURCE", help="VISA resource of the bias supply; bench: the twin's own."),
]
Meter = Annotated[
    Resource,
    typer.Option(metavar="RESOURCE", help="VISA resource of an optical power meter; bench: the twin's own."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: for scripts, and once it is set up.")]


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
    """Set up a kit step by step, measure its modulators, and keep the calibration.

    Every step passes or fails, with the figure, its limit and the hint. Instruments are optional: what needs one
    that is not there is left to you. A twin brings its own; of sim:// only laser and meter are used by default, because
    that twin begins again with every command and forgets what its supply was set to. The calibration is kept when
    all steps pass. For example: lightning calibrate --device sim://kit
    """
    from lightning.kit.calibration.guided import run_guided
    from lightning.kit.connection import connect
    from lightning.kit.devices.identity import identity_of

    soc = connect(device)
    whose = identity_of(soc)
    asked = {role: each for role, each in zip(ROLES, (laser, bias, meter), strict=True) if each}
    named = resources(soc, asked, lasting=not device.startswith("sim://"))
    asks = not yes and not as_json and sys.stdin.isatty()
    _permit({role: each for role, each in asked.items() if each != OWN}, whose, asks=asks, yes=yes)
    with instruments(named, insisted=bool(asked)) as bench:
        run = run_guided(
            soc,
            instruments=bench,
            shots=shots,
            report=None if as_json else _say,
            turn_paddles=_turn_paddles if asks and not whose.simulated else None,
        )
    saved = _keep(run, png, whose)
    (_print_document if as_json else _print_end)(run, whose, saved, png)
    return DONE if run.passed else ERROR


def resources(soc: Any, asked: dict[str, str], *, lasting: bool) -> dict[str, str]:
    """Return VISA resources by role: the given ones, or a twin's own; its bias supply only if its state is `lasting`.

    Raises `AddressError` for the own instruments of a device that has none.
    """
    bench = getattr(soc, "bench", None)
    own = bench() if soc.simulated and callable(bench) else {}
    if not asked:
        return {role: resource for role, resource in own.items() if lasting or role != "bias"}
    for role, resource in asked.items():
        if resource == OWN and role not in own:
            raise AddressError(
                f"this device has no {role} of its own", hint="Give the VISA resource of yours"
            )
    return {role: own[role] if resource == OWN else resource for role, resource in asked.items()}


@contextlib.contextmanager
def instruments(named: dict[str, str], *, insisted: bool) -> Iterator[Any]:
    """Return the instruments at these resources; None for none, or, unless `insisted` on, where PyVISA is missing.

    Raises `MissingLibrary`, and the errors of the instruments.
    """
    opened = None
    if named:
        from lightning.kit.instruments import open_bench

        try:
            opened = open_bench(named)
        except MissingLibrary:
            if insisted:
                raise
    with opened or contextlib.nullcontext() as bench:
        yield bench


def _permit(named: dict[str, str], whose: DeviceIdentity, *, asks: bool, yes: bool) -> None:
    """Check that the user has confirmed changes to instruments that may be real, even with a simulated kit."""
    if not named or yes:
        return
    if not asks:
        raise LightningError(
            f"{' and '.join(named)} would be set, but there is no terminal to ask for confirmation",
            device=whose.name,
            hint="Pass --yes",
        )
    listed = "\n".join(f"  {role}: {resource}" for role, resource in named.items())
    typer.confirm(f"These instruments will be switched on and set:\n{listed}\nGo on?", abort=True)


def _turn_paddles(brightness: Callable[[], float]) -> None:
    """Ask a person to turn the polarisation controller, and read the light as often as wanted."""
    print("Turn the paddles of the polarisation controller until the reading is highest.")
    best = 0.0
    while True:
        found = brightness()
        best = max(best, found)
        prompt = f"{INDENT}{found:6.1%} of the converter (best {best:.1%}). Enter reads again, d is done: "
        try:
            answer = input(prompt)
        except EOFError:
            return
        if answer.strip().lower().startswith("d"):
            return


def _keep(run: GuidedRun, png: Path | None, whose: DeviceIdentity) -> Path | None:
    """Save what passed; the plot also of what did not, where there are sweeps."""
    from lightning.kit.calibration import store

    if png is not None and run.calibration is not None:
        from lightning.kit import plots
        from lightning.kit.plots import load_sweeps

        plots.save(plots.transfer_curves(load_sweeps(run.calibration, run.raw), whose), png)
    if not run.passed or run.calibration is None:
        return None
    try:
        return store.save(run.calibration, raw=run.raw)
    except OSError as error:
        raise CalibrationError(
            f"the calibration cannot be saved in {store.folder()} ({error.strerror})",
            device=whose.name,
            hint=f"Set {store.FOLDER_VARIABLE} to a writable folder",
        ) from error


def _say(outcome: Outcome) -> None:
    verdict = "skip" if outcome.skipped else "pass" if outcome.passed else "FAIL"
    _print_wrapped(f"{verdict}  {outcome.step:<13} {outcome.figure}; limit: {outcome.limit}")
    if outcome.hint:
        kind = "by hand" if outcome.skipped else "hint"
        _print_wrapped(f"{INDENT}{kind}: {outcome.hint}")


def _print_wrapped(line: str) -> None:
    width = min(shutil.get_terminal_size((110, 24)).columns, 130)
    print("\n".join(textwrap.wrap(line, width, subsequent_indent=INDENT, drop_whitespace=True)), flush=True)


def _print_end(run: GuidedRun, whose: DeviceIdentity, saved: Path | None, png: Path | None) -> None:
    failed = [each.step for each in run.outcomes if not each.passed]
    if failed:
        print(f"{whose.label}: {', '.join(failed)} failed; nothing was saved")
    else:
        print(f"{whose.label}: all {len(run.outcomes)} steps passed")
    for kept in (saved, png if run.calibration is not None else None):
        if kept is not None:
            print(f"written: {kept}")


def _print_document(run: GuidedRun, whose: DeviceIdentity, saved: Path | None, png: Path | None) -> None:
    document: dict[str, Any] = {
        "steps": [asdict(each) for each in run.outcomes],
        "saved": None if saved is None else str(saved),
        "written": [str(png)] if png is not None and run.calibration is not None else [],
    }
    failed = next((each for each in run.outcomes if not each.passed), None)
    if failed is not None:
        what = f"the step {failed.step!r} failed: {failed.figure}; wanted {failed.limit}"
        error: dict[str, object] = {
            "code": CalibrationError.code,
            "message": what,
            "device": whose.name,
            "hint": failed.hint,
        }
        document["error"] = error
    print_document(whose, document, ok=run.passed)
