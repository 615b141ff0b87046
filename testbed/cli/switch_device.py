"""The switch that `testbed switch ADDRESS ...` works on, and how it is named to people and programs."""

from __future__ import annotations

import logging
import math
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import typer

from ocs_drivers import OpticalSwitch, open_switch
from ocs_drivers.engine.reports import describe_pairs, ports_of
from ocs_drivers.errors import OcsError
from ocs_drivers.transports.recording import recording
from testbed.cli.on_demand import load_on_demand
from testbed.errors import Interrupted, MoveTimedOut, TimedOut

LOOK_TIMEOUT_S = 60.0
"""Time for a whole command that moves nothing; one that moves is given what it needs."""
SLOW_S = 5.0
"""A device that has not done after so long is told as slow."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Arguments before the command: which switch, and how to talk to it."""

    address: str
    timeout_s: float | None
    answer_s: float
    record: Path | None


class TimeIsUp(BaseException):
    """The end of the time of a command, wherever it is; no error, so that nothing takes it for the device's."""


def seconds(value: float | None) -> float | None:
    """Return a number of seconds. Raises `BadParameter` for what is not one."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a number of seconds")
    return value


@contextmanager
def opened(context: typer.Context, *, is_bounded: bool = True) -> Iterator[OpticalSwitch]:
    """Provide the switch that was chosen, recorded if asked for.

    A command that is `not is_bounded` ends in its own time, unless `--timeout` bounds it.
    """
    wanted: Wanted = context.obj
    load_on_demand("numpy", "psutil")
    timeout_s = wanted.timeout_s or (LOOK_TIMEOUT_S if is_bounded else None)
    with ExitStack() as stack:
        if wanted.record is not None:
            stack.enter_context(_recording(wanted.record))
        if is_bounded:  # one that moves tells of its progress
            stack.enter_context(slowness_told(wanted.address))
        with time_limit(timeout_s, wanted.address):  # closing is not in it: it takes a second at most
            switch = stack.enter_context(open_switch(wanted.address, timeout_s=wanted.answer_s))
            try:
                yield switch
            except OcsError as error:  # one of the command line itself does not name the device
                error.locate(device=switch.address)
                raise


@contextmanager
def slowness_told(address: str) -> Iterator[None]:
    """Say on standard error that the device is slow, first after `SLOW_S`, then each time that the wait has doubled."""
    done = Event()

    def tell() -> None:
        waited_s = pause_s = SLOW_S
        while not done.wait(pause_s):
            print(
                f"   {_without_account(address)} is slow: {waited_s:g} s so far", file=sys.stderr, flush=True
            )
            pause_s, waited_s = waited_s, 2 * waited_s

    watcher = Thread(target=tell, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


@contextmanager
def time_limit(timeout_s: float | None, address: str) -> Iterator[None]:
    """End what is inside after so many seconds, wherever it waits. Raises `TimedOut`."""
    if timeout_s is None:
        yield
        return

    before = signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        try:
            yield
        finally:
            _disarm()  # in the outer `try`: an alarm that comes before it is no less the end of the time
    except TimeIsUp:
        raise TimedOut(
            f"{_without_account(address)}: not done within {timeout_s:g} s. Check the port of the address and the "
            "device; --timeout gives the command more time"
        ) from None
    finally:
        signal.signal(signal.SIGALRM, before)


def _ring(_signum: int, _frame: object) -> None:
    raise TimeIsUp


def _disarm() -> None:
    """End the time limit that is in force, if any."""
    if signal.getsignal(signal.SIGALRM) is _ring:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _without_account(address: str) -> str:
    scheme, _, rest = address.rpartition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if scheme else rest.rpartition("@")[2]


@contextmanager
def _recording(path: Path) -> Iterator[None]:
    """Record into a new file. Raises `BadParameter` where there cannot be one."""
    with ExitStack() as stack:
        try:
            stack.enter_context(recording(path))
        except FileExistsError:
            raise typer.BadParameter(
                f"{str(path)!r} exists, and a recording is never written over: name a new file",
                param_hint="--record",
            ) from None
        except (OSError, ValueError) as error:
            raise typer.BadParameter(f"cannot write {str(path)!r}: {error}", param_hint="--record") from None
        yield


@contextmanager
def moving(switch: OpticalSwitch, pairs: Mapping[int, int] | None = None) -> Iterator[None]:
    """Tell of a longer wait, and say that one which is ended does not stop the device: `pairs` are unknown then."""
    pairs = pairs or {}
    named = f"unknown: {describe_pairs(pairs.items())}. " if pairs else ""
    after = f"what was sent may still be carried out. {named}See what it holds: testbed switch {switch.address} read"
    with _progress_told():
        try:
            yield
            _disarm()  # it has moved, and what is left is to say so
        except KeyboardInterrupt:
            raise Interrupted(f"{switch.address}: interrupted; {after}", unknown=pairs) from None
        except TimeIsUp:
            raise MoveTimedOut(
                f"{switch.address}: the time of --timeout is over; {after}", unknown=pairs
            ) from None


@contextmanager
def writing(
    switch: OpticalSwitch,
    runs_dir: Path,
    pairs: Mapping[int, int] | None = None,
    held: Mapping[int, int] | None = None,
    *,
    ports: Iterable[int] = (),
) -> Iterator[None]:
    """Do the same as `moving`, under the leases of the labs that the switch is part of.

    What is written are these ports, both ends of the pairs, and of the circuits that are `held` at one of these ends.
    """
    from testbed.operate.direct import holding  # the journal: not for a look

    made = pairs or {}
    removed = {i: o for i, o in (held or {}).items() if i in made or o in made.values()}
    touched = frozenset({*ports, *ports_of([*made.items(), *removed.items()])})
    with holding(runs_dir, switch.address, touched), moving(switch, pairs):
        yield


@contextmanager
def _progress_told() -> Iterator[None]:
    """Print what drivers tell of a wait on standard error."""
    logger = logging.getLogger("ocs_drivers.progress")
    handler, before = logging.StreamHandler(sys.stderr), logger.level
    handler.setFormatter(logging.Formatter("   %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


def is_simulated(switch: OpticalSwitch) -> bool:
    """Return True for a twin, which names itself in its serial number."""
    return switch.identity().serial.startswith("SIM")


def about(switch: OpticalSwitch) -> dict[str, Any]:
    """Return what every document begins with: which switch, and whether it is real."""
    return {"address": switch.address, "simulated": is_simulated(switch)}


def heading(switch: OpticalSwitch) -> str:
    """Return the title of what people read."""
    return f"{'SIMULATED ' if is_simulated(switch) else ''}{switch.address}"
