"""A session with the switch of `testbed switch ADDRESS ...`: open it, bound its time, tell of progress, hold leases."""

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
from ocs_drivers.engine.reports import describe_pairs, ports_of
from ocs_drivers.errors import OcsError
from ocs_drivers.transports.recording import recording
from testbed.errors import Interrupted, MoveTimedOut, TimedOut, UsageError

SLOW_S = 5.0
"""A command that lasts longer says that the device is slow."""


class TimeIsUp(BaseException):
    """The end of the time of a command, wherever it is; no error, so that nothing takes it for the device's."""


@contextmanager
def open_device(
    address: str, timeout_s: float | None, answer_s: float, record: Path | None, *, announces_slowness: bool
) -> Iterator[OpticalSwitch]:
    """Provide the switch at an address, for `timeout_s` at most; None for as long as it takes.

    Each answer may take `answer_s`. Raises `TimedOut`, `UsageError` for the file of a recording, and `OcsError`.
    """
    load_on_demand("numpy", "psutil")
    with ExitStack() as stack:
        if record is not None:
            stack.enter_context(_record_into(record))
        if announces_slowness:
            stack.enter_context(announce_slowness(address))
        with time_limit(timeout_s, address):  # closing is not in it: it takes a second at most
            switch = stack.enter_context(open_switch(address, timeout_s=answer_s))
            try:
                yield switch
            except OcsError as error:  # one of the command itself does not name the device
                error.locate(device=switch.address)
                raise


@contextmanager
def announce_slowness(address: str) -> Iterator[None]:
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
            f"{_without_account(address)}: not done within {timeout_s:g} s. Check the port of the address "
            "and the device; raise the limit with --timeout"
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
def _record_into(path: Path) -> Iterator[None]:
    """Record into a new file. Raises `UsageError` where there cannot be one."""
    with ExitStack() as stack:
        try:
            stack.enter_context(recording(path))
        except FileExistsError:
            raise UsageError(
                f"--record: {str(path)!r} exists, and recordings are never overwritten: name a new file"
            ) from None
        except (OSError, ValueError) as error:
            raise UsageError(f"--record: cannot write {str(path)!r}: {error}") from None
        yield


@contextmanager
def moving(switch: OpticalSwitch, pairs: Mapping[int, int] | None = None) -> Iterator[None]:
    """Tell of a longer wait, and say that one which is ended does not stop the device: `pairs` are unknown then."""
    pairs = pairs or {}
    unknown = f"unknown: {describe_pairs(pairs.items())}. " if pairs else ""
    after = f"what was sent may still be carried out. {unknown}See what it holds: testbed switch {switch.address} read"
    with _show_progress():
        try:
            yield
            _disarm()  # it has moved, and what is left is to say so
        except KeyboardInterrupt:
            raise Interrupted(f"{switch.address}: interrupted; {after}", unknown=pairs) from None
        except TimeIsUp:
            raise MoveTimedOut(f"{switch.address}: --timeout has passed; {after}", unknown=pairs) from None


@contextmanager
def writing(
    switch: OpticalSwitch,
    runs_dir: Path,
    pairs: Mapping[int, int] | None = None,
    connections: Mapping[int, int] | None = None,
    *,
    ports: Iterable[int] = (),
) -> Iterator[None]:
    """Do the same as `moving`, under the leases of the labs that the switch is part of.

    What is written are these ports, both ends of the pairs, and of the `connections` at one of these ends.
    """
    from testbed.operate.direct import holding  # the journal: not for a look

    new = pairs or {}
    old = {i: o for i, o in (connections or {}).items() if i in new or o in new.values()}
    changes = frozenset({*ports, *ports_of([*new.items(), *old.items()])})
    with holding(runs_dir, switch.address, changes), moving(switch, pairs):
        yield


@contextmanager
def _show_progress() -> Iterator[None]:
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
    """Return the fields that every document begins with: the switch, and whether it is simulated."""
    return {"address": switch.address, "simulated": is_simulated(switch)}


def heading(switch: OpticalSwitch) -> str:
    """Return the title of what people read."""
    return f"{'SIMULATED ' if is_simulated(switch) else ''}{switch.address}"


class _OnDemand(ModuleType):
    """A package before its code has run, which the first look at anything in it makes an ordinary one.

    `importlib.util.LazyLoader` does not do: a mere `import` looks at `__spec__`, which loads the module.
    """

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__
        with state["_lock"]:
            path = state.pop("_path", None)
            if path is not None:  # nobody was here before, not even the code that is run now
                state["__path__"] = path
                self.__spec__.loader.exec_module(self)  # type: ignore[union-attr]
                self.__class__ = ModuleType  # type: ignore[assignment]
        try:
            return state[name]
        except KeyError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None


def load_on_demand(*packages: str) -> None:
    """Make the import of packages wait until something of them is used, in this process.

    PyVISA imports NumPy for transfers of binary data and psutil for the search for instruments. A switch needs
    neither, and they are half of the processor time of a short command. What is loaded already, or not installed,
    stays as it is.
    """
    for name in packages:
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        if spec is None or spec.submodule_search_locations is None:
            continue
        module = _OnDemand(name)
        module.__spec__, module.__file__, module.__loader__ = spec, spec.origin, spec.loader
        module.__package__ = name
        module.__dict__.update(_lock=RLock(), _path=spec.submodule_search_locations)
        sys.modules[name] = module
