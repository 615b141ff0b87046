"""One lab, through its file or through a service: `open_lab` returns the lab, whose methods are the commands."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from lightbed.errors import LightbedError
from testbed.commands.context import DEFAULT_RUNS
from testbed.commands.declare import list_fields
from testbed.commands.groups import HostsChoice, parse_interval
from testbed.commands.progress import ProgressCallback
from testbed.commands.table import load_command
from testbed.errors import HostError, LabStartError, LeaseDenied, UsageError
from testbed.leases.choice import use_lease
from testbed.leases.heartbeat import keep_alive
from testbed.scripting.backends import (
    Backend,
    LabEvent,
    LocalBackend,
    ServiceBackend,
    make_command,
)

if TYPE_CHECKING:
    from testbed.commands.design.optimise import PlanDocument as OptimiseDocument
    from testbed.commands.documents import Document
    from testbed.commands.lab.apply import ApplyDocument
    from testbed.commands.lab.drift import DriftDocument
    from testbed.commands.lab.history import Epoch, EpochList
    from testbed.commands.lab.path import PathDocument
    from testbed.commands.lab.plan import PlanDocument
    from testbed.commands.lab.repair import RepairDocument
    from testbed.commands.lab.resume import ResumeDocument
    from testbed.commands.lab.rollback import RollbackDocument
    from testbed.commands.lab.verify import VerifyDocument
    from testbed.commands.measure.job import PlanJobDocument
    from testbed.commands.measure.nccl import MeasurementDocument
    from testbed.commands.measure.run import ProgramDocument
    from testbed.commands.share.lease import Lease, LeaseDocument


TOPOLOGY_OPTIONS = frozenset({"change", "epoch", "plan_file"})
"""Options that name a topology with its hosts."""


def _ignore(_done: int, _total: int, _text: str) -> None:
    """Report no progress."""


def open_lab(
    source: str | Path,
    *,
    start: bool = False,
    token: str | None = None,
    runs_dir: str | Path | None = None,
    hosts: HostsChoice = "auto",
    really_move: str | None = None,
    progress: ProgressCallback | bool = False,
    verify_certificate: Any = True,
) -> Lab:
    """Return the lab of a lab file, or of a service by its URL and the lab's name: `https://lab.example/testbed12`.

    A lab is a context manager, which closes the lab at the end of the block. The arguments:

    - `start`: start the simulated lab of the file unless it is running, in the first free subnet, and stop it at the
      end. This has no effect on a real lab or a lab of a service.
    - `token`: token of the service; by default `LIGHTBED_TOKEN`. `verify_certificate` is passed to httpx.
    - `runs_dir`: folder of results and of the journal; by default `LIGHTBED_RUNS`, or `runs`.
    - `hosts`, `really_move`: the same as the options of the commands; `really_move` names a real lab that may be
      changed.
    - `progress`: a function that takes the number of steps done, the number of all steps (0 if unknown) and a text, or
      True for a progress bar on standard error.

    Raises `LabFileError`, `LabStartError`, `UsageError`, and the errors of the client.
    """
    if hosts not in ("auto", "kernel", "model"):
        raise UsageError(f"hosts={hosts!r} is none of 'auto', 'kernel', 'model'")
    report_progress = None if progress is True else progress or _ignore
    if str(source).startswith(("http://", "https://")):
        if runs_dir is not None:
            raise UsageError("the runs of a service are there: leave out runs_dir")
        backend: Backend = _connect(str(source), token, verify_certificate)
    else:
        runs_folder = Path(runs_dir or os.environ.get("LIGHTBED_RUNS") or DEFAULT_RUNS)
        backend = _open_lab_file(Path(source), runs_folder, hosts, start=start)
    return Lab(backend, hosts, really_move, report_progress)


def _connect(url: str, token: str | None, verify: Any) -> ServiceBackend:
    """Return the backend for the lab that a URL names, or for the only lab of the service if it names none."""
    from testbed.client import connect, connect_async

    scheme, _, location = url.partition("://")
    server, _, name = location.rstrip("/").rpartition("/")
    server, name = (server, name) if server else (name, "")
    server_url = f"{scheme}://{server}"
    with ExitStack() as stack:
        client = stack.enter_context(connect(server_url, token, verify=verify))
        lab_names = [lab_document["name"] for lab_document in client.list_labs()]
        if name not in lab_names and (name or len(lab_names) != 1):
            choices_text = ", ".join(lab_names) or "none"
            raise UsageError(
                f"the service {server_url} has no lab {name!r}: its labs are {choices_text}. Write {server_url}/LAB"
            )
        stack.pop_all()
    return ServiceBackend(
        client, name or lab_names[0], partial(connect_async, server_url, token, verify=verify)
    )


def _open_lab_file(lab_file: Path, runs_dir: Path, hosts: HostsChoice, *, start: bool) -> LocalBackend:
    from testbed.lab.inventory import load_lab, render_lab
    from testbed.lab.simulated.lifecycle import find_running_lab, is_up, start_lab

    lab = load_lab(lab_file)
    if not start or not lab.simulated:
        return LocalBackend(lab_file, runs_dir)
    with suppress(LabStartError):  # several running labs have this name, so start another lab
        if is_up(find_running_lab(lab)):
            return LocalBackend(lab_file, runs_dir)
    with ExitStack() as stack:
        simulated_lab = start_lab(lab, hosts=hosts, may_move=True)
        stack.callback(simulated_lab.close)
        if simulated_lab.lab != lab:  # it runs at other addresses or rates, so it needs a separate file
            lab_file = runs_dir / "labs" / f"{simulated_lab.lab_id}.yaml"
            lab_file.parent.mkdir(parents=True, exist_ok=True)
            lab_file.write_text(render_lab(simulated_lab.lab), encoding="utf-8")
        stack.pop_all()
    return LocalBackend(lab_file, runs_dir, simulated_lab)


class Lab:
    """A lab, for one thread at a time. Each method runs the command of the same name.

    Keywords are the options of the command, with underscores and without `--`; arguments of a command may be
    positional. Methods return the command's document, a frozen dataclass with `to_json`, and raise the errors of
    `testbed.errors` and of the devices. A change uses the lease of its `with lab.lease()` block, or else the lease in
    `LIGHTBED_LEASE`, or else an implicit lease. Ctrl-C stops a change after its current step; a second Ctrl-C stops it
    at once.
    """

    def __init__(
        self,
        backend: Backend,
        hosts: HostsChoice,
        really_move: str | None,
        progress: ProgressCallback | None = _ignore,
        *,
        hosts_of: Sequence[str] = (),
    ) -> None:
        """Take the backend, defaults for options of commands, and the hosts that commands use (default: all)."""
        self._backend = backend
        self._hosts = tuple(hosts_of)
        self._defaults: dict[str, Any] = {"hosts": hosts, "really_move": really_move}
        if hosts_of:
            self._defaults["hosts_of"] = ",".join(hosts_of)
        self._progress = progress
        selected_lease = os.environ.get("LIGHTBED_LEASE", "")
        self.lease_in_use = ContextVar("lease of a lab", default=selected_lease)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        """Return a drawing of the topology that `apply` would set up; notebooks call this."""
        return self.plan()._repr_html_()

    def close(self) -> None:
        """Release the resources of the lab; stop it if `open_lab` started it. Safe to call again."""
        self._backend.close()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the hosts, in the order of the lab file."""
        return self._hosts or self._backend.list_hosts()

    def optimise(self, workload: str, **options: Any) -> OptimiseDocument:
        """Find a strategy and a topology for a workload, and write a plan to `out` (`testbed optimise`).

        Raises `UsageError` for a lab of a service.
        """
        lab_file = self._backend.find_lab_file()
        return cast("OptimiseDocument", self.command("optimise", workload, lab_file=lab_file, **options))

    def plan(self, **options: Any) -> PlanDocument:
        """Return the changes that `apply` would make on the switches (`testbed plan`)."""
        return cast("PlanDocument", self.command("plan", **options))

    def apply(self, **options: Any) -> ApplyDocument:
        """Patch a topology, install the hosts' routes, and verify both (`testbed apply`)."""
        return cast("ApplyDocument", self.command("apply", **options))

    def verify(self, **options: Any) -> VerifyDocument:
        """Compare circuits, light, fibres, kernels and packets with the plan (`testbed verify`)."""
        return cast("VerifyDocument", self.command("verify", **options))

    def path(self, source: str, target: str, **options: Any) -> PathDocument:
        """Return the path of a packet between two hosts, by plan and by the kernels (`testbed path`)."""
        return cast("PathDocument", self.command("path", source, target, **options))

    def nccl(self, **options: Any) -> MeasurementDocument:
        """Measure AllReduce over the current circuits (`testbed nccl`)."""
        return cast("MeasurementDocument", self.command("nccl", **options))

    def job(self, **options: Any) -> PlanJobDocument:
        """Run the plan in force as a job, and compare it with the prediction (`testbed job`)."""
        return cast("PlanJobDocument", self.command("job", **options))

    def run(self, *words: str, hosts: Sequence[str] = (), **options: Any) -> ProgramDocument:
        """Run a command on hosts of the lab, on its own circuits (`testbed run`): `lab.run("hostname", nodes=4)`.

        A single text is split into words as by a shell. Within a block of `lease`, the command uses the existing
        circuits. Failed ranks raise no error (see `exit_code`). Raises `LightDenied`; `HostError` for modelled hosts.
        """
        if self._defaults["hosts"] == "model":  # the hosts of the lab itself may be namespaces
            raise HostError(
                "the hosts are only modelled and run no program: open the lab with hosts='kernel' "
                "(tests: --lab-hosts kernel)"
            )
        program = shlex.split(words[0]) if len(words) == 1 else list(words)
        return cast(
            "ProgramDocument", self.command("run", program=program, hosts_of=",".join(hosts), **options)
        )

    def repair(self, **options: Any) -> RepairDocument:
        """Find lost fibres and plan how to avoid them; with `apply=True`, apply the plan (`testbed repair`)."""
        return cast("RepairDocument", self.command("repair", **options))

    def resume(self, **options: Any) -> ResumeDocument:
        """Complete an unfinished operation (`testbed resume`)."""
        return cast("ResumeDocument", self.command("resume", **options))

    def rollback(self, **options: Any) -> RollbackDocument:
        """Return to an earlier verified epoch, by default the previous one (`testbed rollback`)."""
        return cast("RollbackDocument", self.command("rollback", **options))

    def light(self, **options: Any) -> DriftDocument:
        """Read and store power and loss of every fibre, and compare them with earlier readings (`testbed drift`)."""
        return cast("DriftDocument", self.command("drift", **options))

    def epochs(self) -> tuple[Epoch, ...]:
        """Return the epochs, the newest first (`testbed history`)."""
        return cast("EpochList", self.command("history")).epochs

    def lease(
        self,
        resources: Sequence[str] = (),
        *,
        ttl: str = "10m",
        wait: float = 0.0,
        reason: str = "",
        **options: Any,
    ) -> HeldLease:
        """Request parts of the lab (default: all parts), and return the lease; use it as a context manager.

        Changes in the block use the lease, which is extended until the end of the block and then released. `wait` is
        the longest time to wait for the grant, in seconds; other options are the options of `testbed lease request`.
        Raises `LeaseDenied`.
        """
        command = {"ttl": ttl, "wait": wait, "reason": reason, **options}
        document = cast("LeaseDocument", self.command("lease request", resources, **command))
        (lease,) = document.leases
        if lease.state != "granted" and not options.get("at"):
            self.command("lease release", lease.id)
            raise LeaseDenied(f"lease {lease.id} was not granted within {wait:g} s: {lease.waits_for}")
        return HeldLease(self, self._backend, lease, parse_interval(ttl))

    def events(self, after: int | None = None) -> Iterator[LabEvent]:
        """Return an endless iterator of the events after number `after` (None: from now on), each as it happens."""
        return self._backend.stream_events(self._backend.find_newest_event() if after is None else after)

    def events_async(self, after: int | None = None) -> AsyncIterator[LabEvent]:
        """Return the same events for a coroutine."""
        return self._backend.stream_events_async(
            self._backend.find_newest_event() if after is None else after
        )

    def command(self, words: str, /, *arguments: Any, **options: Any) -> Document:
        """Run any command of `testbed` on this lab, such as `doctor` or `lease list`, and return its document."""
        command = make_command(words, arguments, self._add_defaults(words, options))
        with use_lease(self.lease_in_use.get()):
            return self._backend.run(words, command, self._progress)

    def _add_defaults(self, words: str, options: dict[str, Any]) -> dict[str, Any]:
        """Return the options, with the defaults of the lab for options that the command has."""
        command_type = load_command(words)
        if command_type is None:
            raise UsageError(f"testbed has no command {words!r} that can run on a lab")
        option_names = {
            field.name
            for field in list_fields(command_type)
            if not field.option.only_with or options.get(field.option.only_with)
        }
        if not TOPOLOGY_OPTIONS.isdisjoint(options):
            option_names.discard("hosts_of")
        return {name: value for name, value in self._defaults.items() if name in option_names} | options


@dataclass
class HeldLease:
    """A lease of a lab, and a context manager: the block extends the lease, and its changes of the lab use the lease.

    Coroutines use `async with`.
    """

    lab: Lab
    backend: Backend
    lease: Lease
    ttl_s: float
    is_released: bool = False

    def __post_init__(self) -> None:
        self._heartbeat = ExitStack()
        self._earlier_lease: Token[str] | None = None

    @property
    def id(self) -> str:
        """The id of the lease."""
        return self.lease.id

    @property
    def resources(self) -> tuple[str, ...]:
        """The parts of the lab that the lease covers."""
        return self.lease.resources

    def extend(self) -> None:
        """Extend the lease, counted from now."""
        self.backend.extend_lease(self.id)

    def release(self) -> None:
        """Release the lease. Safe to call again."""
        if not self.is_released:
            self.is_released = True
            self.lab.command("lease release", self.id)

    def __enter__(self) -> Self:
        if self.lease.state != "granted":
            raise LeaseDenied(f"lease {self.id} is {self.lease.state}: a block needs one that is granted")
        self._earlier_lease = self.lab.lease_in_use.set(self.id)
        self._heartbeat.enter_context(keep_alive(self.extend, self.ttl_s / 3))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()
        self._end(error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()
        await asyncio.to_thread(self._end, error)

    def _restore(self) -> None:
        """Select the lease from before the block again."""
        assert self._earlier_lease is not None, "the block was entered"
        self.lab.lease_in_use.reset(self._earlier_lease)

    def _end(self, error: BaseException | None) -> None:
        """End the heartbeat, and release the lease."""
        self._heartbeat.close()
        try:
            self.release()
        except LightbedError:
            if error is None:  # otherwise the error of the block says more
                raise
