"""A session with the switch that `testbed switch ADDRESS ...` names: time limit, progress messages and leases."""

from __future__ import annotations

import importlib.util
import logging
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, RLock, Thread
from types import ModuleType
from typing import Any

from ocs_drivers import OpticalSwitch, open_switch
from ocs_drivers.engine.reports import describe_pairs, list_ports
from ocs_drivers.errors import OcsError
from ocs_drivers.transports.recording import record_sessions
from testbed.errors import Interrupted, MoveTimedOut, TimedOut, UsageError

SLOW_AFTER_S = 5.0
"""Time after which a command first prints that the device is slow."""


class TimeLimitReached(BaseException):
    """The end of a command's time. It is not an `Exception`, so that no handler treats it as an error of the device."""


@contextmanager
def open_device(
    address: str,
    timeout_s: float | None,
    answer_timeout_s: float,
    record_path: Path | None,
    *,
    announces_slowness: bool,
) -> Iterator[OpticalSwitch]:
    """Open the switch at an address for at most `timeout_s` (None: no limit).

    Each answer may take `answer_timeout_s`. `record_path` names a new file for all bytes on the wire. Raises
    `TimedOut`, `OcsError`, and `UsageError` if the recording cannot be written.
    """
    load_on_demand("numpy", "psutil")
    with ExitStack() as stack:
        if record_path is not None:
            stack.enter_context(_record_exchange(record_path))
        if announces_slowness:
            stack.enter_context(announce_slowness(address))
        with limit_time(timeout_s, address):  # closing is not included: it takes at most a second
            switch = stack.enter_context(open_switch(address, timeout_s=answer_timeout_s))
            try:
                yield switch
            except OcsError as error:
                # An error from the command's own code does not name the device, so add it.
                error.locate(device=switch.address)
                raise


@contextmanager
def announce_slowness(address: str) -> Iterator[None]:
    """Print on standard error that the device is slow, after `SLOW_AFTER_S` and whenever the wait has doubled."""
    has_ended = Event()

    def announce() -> None:
        waited_s = pause_s = SLOW_AFTER_S
        while not has_ended.wait(pause_s):
            print(
                f"   {_strip_credentials(address)} is slow: {waited_s:g} s so far",
                file=sys.stderr,
                flush=True,
            )
            pause_s, waited_s = waited_s, 2 * waited_s

    watcher = Thread(target=announce, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        has_ended.set()
        watcher.join()


@contextmanager
def limit_time(timeout_s: float | None, address: str) -> Iterator[None]:
    """End the block after `timeout_s`, even inside a blocking call. Raises `TimedOut`."""
    if timeout_s is None:
        yield
        return

    previous_handler = signal.signal(signal.SIGALRM, _raise_time_is_up)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        try:
            yield
        finally:
            # The outer `try` includes this line, so an alarm just before it still raises `TimedOut`.
            _stop_alarm()
    except TimeLimitReached:
        raise TimedOut(
            f"{_strip_credentials(address)}: not done within {timeout_s:g} s. Check the port of the address "
            "and the device; raise the limit with --timeout"
        ) from None
    finally:
        signal.signal(signal.SIGALRM, previous_handler)


def _raise_time_is_up(_signum: int, _frame: object) -> None:
    raise TimeLimitReached


def _stop_alarm() -> None:
    """Stop the alarm of the time limit, if one is set."""
    if signal.getsignal(signal.SIGALRM) is _raise_time_is_up:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _strip_credentials(address: str) -> str:
    scheme, _, location = address.rpartition("://")
    return f"{scheme}://{location.rpartition('@')[2]}" if scheme else location.rpartition("@")[2]


@contextmanager
def _record_exchange(path: Path) -> Iterator[None]:
    """Record the exchange in a new file. Raises `UsageError` if it exists or cannot be written."""
    with ExitStack() as stack:
        try:
            stack.enter_context(record_sessions(path))
        except FileExistsError:
            raise UsageError(
                f"--record: {str(path)!r} exists, and recordings are never overwritten: name a new file"
            ) from None
        except (OSError, ValueError) as error:
            raise UsageError(f"--record: cannot write {str(path)!r}: {error}") from None
        yield


@contextmanager
def report_change(switch: OpticalSwitch, pairs: Mapping[int, int] | None = None) -> Iterator[None]:
    """Show the driver's progress during a change, and convert interrupts.

    Raises `Interrupted` or `MoveTimedOut` if the block is interrupted or out of time. The device may still execute the
    change, so the error lists `pairs` as circuits whose state is unknown.
    """
    pairs = pairs or {}
    unknown_text = f"unknown: {describe_pairs(pairs.items())}. " if pairs else ""
    advice = f"the device may still execute it. {unknown_text}Read its circuits: testbed switch {switch.address} read"
    with _show_progress():
        try:
            yield
            _stop_alarm()  # the device has moved, so a later time-out would report the wrong state
        except KeyboardInterrupt:
            raise Interrupted(f"{switch.address}: interrupted; {advice}", unknown=pairs) from None
        except TimeLimitReached:
            raise MoveTimedOut(f"{switch.address}: --timeout has passed; {advice}", unknown=pairs) from None


@contextmanager
def change_under_lease(
    switch: OpticalSwitch,
    runs_dir: Path,
    pairs: Mapping[int, int] | None = None,
    connections: Mapping[int, int] | None = None,
    *,
    ports: Iterable[int] = (),
) -> Iterator[None]:
    """Wrap a change as `report_change` does, and lease the ports of the change in all labs that contain the switch.

    It leases `ports`, the ends of `pairs`, and the ends of current `connections` that share a port with `pairs`.
    """
    from testbed.operate.direct import lease_ports  # imports the journal: only if needed

    new_circuits = pairs or {}
    old_circuits = {
        source: output
        for source, output in (connections or {}).items()
        if source in new_circuits or output in new_circuits.values()
    }
    changed_ports = frozenset({*ports, *list_ports([*new_circuits.items(), *old_circuits.items()])})
    with lease_ports(runs_dir, switch.address, changed_ports), report_change(switch, pairs):
        yield


@contextmanager
def _show_progress() -> Iterator[None]:
    """Print the drivers' progress messages on standard error."""
    logger = logging.getLogger("ocs_drivers.progress")
    handler, previous_level = logging.StreamHandler(sys.stderr), logger.level
    handler.setFormatter(logging.Formatter("   %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(previous_level)
        logger.removeHandler(handler)


def is_simulated(switch: OpticalSwitch) -> bool:
    """Return whether a switch is a twin, whose serial number begins with SIM."""
    return switch.identity().serial.startswith("SIM")


def make_switch_fields(switch: OpticalSwitch) -> dict[str, Any]:
    """Return the fields of `SwitchDocument`: the address, and whether the switch is simulated."""
    return {"address": switch.address, "simulated": is_simulated(switch)}


def make_heading(switch: OpticalSwitch) -> str:
    """Return the title of the output for people."""
    return f"{'SIMULATED ' if is_simulated(switch) else ''}{switch.address}"


class _LazyPackage(ModuleType):
    """A package whose code runs at the first access to an attribute. The package then becomes an ordinary module.

    `importlib.util.LazyLoader` does not suffice: `import` itself reads `__spec__`, which would load the module.
    """

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__
        with state["_lock"]:
            path = state.pop("_path", None)
            if path is not None:  # first access; later ones, also by the package's own code, skip this
                state["__path__"] = path
                self.__spec__.loader.exec_module(self)  # type: ignore[union-attr]
                self.__class__ = ModuleType  # type: ignore[assignment]
        try:
            return state[name]
        except KeyError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None


def load_on_demand(*packages: str) -> None:
    """Delay the import of packages in this process until one of their attributes is used.

    PyVISA imports NumPy for binary transfers and psutil to search for instruments. A switch needs neither, and their
    imports take half of the processor time of a short command. Skips packages that are loaded or not installed.
    """
    for name in packages:
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        if spec is None or spec.submodule_search_locations is None:
            continue
        module = _LazyPackage(name)
        module.__spec__, module.__file__, module.__loader__ = spec, spec.origin, spec.loader
        module.__package__ = name
        module.__dict__.update(_lock=RLock(), _path=spec.submodule_search_locations)
        sys.modules[name] = module
