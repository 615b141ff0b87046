"""Light for a program: lease hosts, patch and verify their circuits, and restore all at the end.

A program under its user's own lease gets the current circuits, unless the request names a topology.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from lightbed.errors import LightbedError
from lightbed.wording import format_count
from ocs_drivers.errors import OcsError
from testbed.errors import LeaseDenied, LightDenied, TestbedError, UsageError
from testbed.lab.hosts.environment import make_program_environment, make_rank_variables
from testbed.lab.hosts.fleet import Fleet, SshFleet
from testbed.lab.model import Lab, LabHost, make_shard
from testbed.leases.choice import get_selected_lease, use_lease
from testbed.leases.fence import convert_database_errors
from testbed.leases.heartbeat import keep_alive
from testbed.leases.model import find_parts
from testbed.leases.store import LeaseStore
from testbed.measure.program.cleanup_process import CleanupProcess
from testbed.operate.borrow import HostNeeds, HostRequest, LabState
from testbed.operate.choice import build_named_design, choose_design
from testbed.operate.design import Design, build_intent_design
from testbed.operate.engine.consent import allow_stop, stop_on_interrupt
from testbed.operate.intent import load_intents, select_in_force
from testbed.operate.journal import open_journal
from testbed.operate.named_topology import NamedTopology
from testbed.operate.session import LabSession, open_lab
from testbed.storage.address import get_database_address
from testbed.storage.database import DATABASE_ERRORS, Database
from testbed.storage.owner import get_current_process

LEASE_TTL_S = 60.0
"""Duration of the lease without a heartbeat. It expires this long after our machine has died."""
AddNote = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LightRequest:
    """A request for light: the number of hosts, the topology (which may name hosts), and the wait for the lease."""

    host_count: int | None
    topology: NamedTopology
    wait_s: float


@dataclass(slots=True)
class LeaseKeeper:
    """A lease that is extended while a program runs. `problem` is "" until the lease has ended."""

    store: LeaseStore
    lease_id: str
    problem: str = ""

    def extend_lease(self) -> None:
        """Extend the lease, or store the reason of a refusal in `problem`. Raises the errors of the database."""
        try:
            self.store.extend(self.lease_id)
        except LeaseDenied as error:
            self.problem = str(error)


@dataclass(slots=True)
class LightGrant:
    """The hosts of a program in the order of its ranks. They are open in `fleet`, and programs get `variables`.

    `design` is the topology in force on the hosts, or None if it is unknown. Its node i is `lab.hosts[i]`.
    `was_patched` is True if a circuit was changed for the program. After the end, `problem` says why the hosts could
    not be restored.
    """

    lab: Lab
    hosts: tuple[LabHost, ...]
    lease_keeper: LeaseKeeper
    fleet: Fleet
    variables: dict[str, str]
    design: Design | None = None
    was_patched: bool = False
    patch_s: float = 0.0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _RankChoice:
    """Hosts of a program in the order of its ranks, and a design of `lab`. It is in force unless `needs_patch`."""

    lab: Lab
    hosts: tuple[LabHost, ...]
    design: Design | None = None
    needs_patch: bool = False


@contextmanager
def open_under_lease(
    lab: Lab, runs_dir: Path, lease_id: str, *, allow_partial: bool = False
) -> Iterator[LabSession]:
    """Open a lab and its hosts for changes under a lease. A program's topology is temporary, so no epoch is stored."""
    with (
        use_lease(lease_id),
        open_journal(runs_dir) as journal,
        open_lab(lab, journal, keep_intent=False, skip_unreachable=allow_partial) as session,
    ):
        yield session


@contextmanager
def provide_light(
    lab: Lab, request: LightRequest, runs_dir: Path, cleanup: CleanupProcess, add_note: AddNote
) -> Iterator[LightGrant]:
    """Provide hosts with light, and restore them at the end of the block.

    Raises `LightDenied` if the lease or the light is not available. Raises errors such as `UsageError` and
    `TopologyError` for a request that the user has to correct.
    """
    database = Database(get_database_address(runs_dir))
    try:
        with ExitStack() as stack:
            with deny_light(), convert_database_errors(database):
                store = LeaseStore(database, lab.name)
                lease_id, host_names = _lease_hosts(stack, lab, request, runs_dir, store, cleanup, add_note)
                lease_keeper = LeaseKeeper(store, lease_id)
                stack.enter_context(keep_alive(lease_keeper.extend_lease, LEASE_TTL_S / 4))
                chosen_names = _choose_hosts(lab, request, runs_dir, host_names)
                choice = _choose_ranks(lab, request, runs_dir, lease_id, chosen_names)
                variables = make_rank_variables(choice.hosts)
                fleet = stack.enter_context(SshFleet(make_shard(lab, [host.name for host in choice.hosts])))
            light = LightGrant(choice.lab, choice.hosts, lease_keeper, fleet, variables, choice.design)
            if choice.needs_patch:
                leased_lab = make_shard(lab, host_names) if len(host_names) < len(lab.hosts) else lab
                stack.enter_context(_hold_patch(light, leased_lab, runs_dir, cleanup, add_note))
            yield light
    finally:
        database.close()


@contextmanager
def deny_light() -> Iterator[None]:
    """Convert errors of the lab into `LightDenied`. Errors that the user has to correct pass unchanged."""
    try:
        yield
    except LightDenied:
        raise
    except (TestbedError, OcsError) as error:
        if error.who == "user" and not isinstance(error, LeaseDenied):
            raise
        raise LightDenied(f"no light: {error}") from error


def _lease_hosts(
    stack: ExitStack,
    lab: Lab,
    request: LightRequest,
    runs_dir: Path,
    store: LeaseStore,
    cleanup: CleanupProcess,
    add_note: AddNote,
) -> tuple[str, tuple[str, ...]]:
    """Return the user's lease, or acquire one that `stack` releases. Also return the hosts that the lease covers."""
    selected_lease_id = get_selected_lease()
    if selected_lease_id:
        extended_lease = store.extend(selected_lease_id)  # raises for a lease of somebody else
        if extended_lease.state != "granted":
            raise LightDenied(
                f"lease {selected_lease_id} is {extended_lease.state}: wait until it is granted"
            )
        return selected_lease_id, tuple(
            host.name for host in lab.hosts if find_parts(lab, [f"host:{host.name}"]) <= extended_lease.parts
        )
    host_names = _list_hosts_of_topology(lab, request.topology, runs_dir)
    host_needs = HostNeeds(host_count=request.host_count, host_names=host_names)
    host_request = HostRequest(lab, host_needs, store, request.wait_s, cleanup.reason, LEASE_TTL_S)
    cleanup.pending_steps.add("lease")
    try:
        lease, leased_hosts = host_request.acquire(
            lambda host_text: add_note(f"waiting for the lease of {host_text}")
        )
    except (LightbedError, *DATABASE_ERRORS):
        cleanup.pending_steps.discard("lease")  # `acquire` has withdrawn the request
        raise
    stack.callback(_release_lease, store, lease.id, cleanup)
    cleanup.register_lease(lease.id)
    add_note(f"lease {lease.id}: {', '.join(leased_hosts)}")
    return lease.id, leased_hosts


def _release_lease(store: LeaseStore, lease_id: str, cleanup: CleanupProcess) -> None:
    if "hosts" in cleanup.pending_steps:
        return  # the cleanup process restores the hosts, under this lease
    with suppress(LeaseDenied):  # somebody has already ended it
        store.release(lease_id)
    cleanup.pending_steps.discard("lease")


def _list_hosts_of_topology(lab: Lab, named_topology: NamedTopology, runs_dir: Path) -> tuple[str, ...]:
    """Return the hosts that options, a plan file or an epoch name, or () if any hosts will do."""
    if named_topology.plan_file is not None:
        from testbed.design.plans.file import read_plan  # with all workloads that a plan may be for

        return tuple(read_plan(named_topology.plan_file).hosts)
    if named_topology.epoch is not None:
        return tuple(host.name for host in choose_design(lab, named_topology, runs_dir).lab.hosts)
    return named_topology.hosts


def _choose_hosts(
    lab: Lab, request: LightRequest, runs_dir: Path, leased_names: Sequence[str]
) -> tuple[str, ...]:
    """Choose the hosts of the program among the leased hosts `leased_names`."""
    requested_hosts = _list_hosts_of_topology(lab, request.topology, runs_dir)
    missing_names = [name for name in requested_hosts if name not in leased_names]
    if missing_names:
        raise LightDenied(f"the lease does not cover host {', '.join(missing_names)}: request one that does")
    chosen_names = requested_hosts or tuple(leased_names[: request.host_count or len(leased_names)])
    if request.host_count not in (None, len(chosen_names)):
        source_text = "the topology names" if requested_hosts else "the lease covers"
        raise UsageError(
            f"--nodes asks for {request.host_count}, but {source_text} {format_count(len(chosen_names), 'host')}"
        )
    if not chosen_names:
        raise LightDenied(
            "the lease does not cover any host as a whole: request a lease that includes host:NAME"
        )
    return chosen_names


def _choose_ranks(
    lab: Lab, request: LightRequest, runs_dir: Path, lease_id: str, chosen_names: tuple[str, ...]
) -> _RankChoice:
    """Choose the topology of the hosts: the named topology, else the topology in force, else the default.

    Without a named topology, a single host and hosts under the user's lease are not patched.
    """
    leased_lab, named_topology = make_shard(lab, chosen_names), request.topology
    if named_topology.epoch is not None:
        stored_choice = choose_design(lab, named_topology, runs_dir)
        return _order_ranks(stored_choice.lab, stored_choice.design, must_be_patched=True)
    if named_topology.has_topology:
        design_lab, design, _ = build_named_design(leased_lab, named_topology)
        return _order_ranks(design_lab, design, must_be_patched=True)
    current_intent = next(
        (
            intent
            for intent in select_in_force(load_intents(runs_dir, lab.name))
            if set(chosen_names) <= set(intent.hosts)
        ),
        None,
    )
    is_temporary_lease = lease_id != get_selected_lease()
    if current_intent is not None and (
        not is_temporary_lease or set(current_intent.hosts) == set(chosen_names)
    ):
        design_lab, design = build_intent_design(lab, current_intent)
        return _order_ranks(
            design_lab, design, must_be_patched=is_temporary_lease, selected_hosts=chosen_names
        )
    if not is_temporary_lease or len(chosen_names) == 1:
        return _RankChoice(leased_lab, leased_lab.hosts)
    design_lab, design, _ = build_named_design(leased_lab, named_topology)
    return _order_ranks(design_lab, design, must_be_patched=True)


def _order_ranks(
    lab: Lab, design: Design, *, must_be_patched: bool, selected_hosts: Sequence[str] = ()
) -> _RankChoice:
    """Return a choice whose ranks follow a ring of the topology. Only `selected_hosts` are used."""
    rank_hosts = make_program_environment(lab, design.topology).ranks
    hosts = tuple(host for host in rank_hosts if not selected_hosts or host.name in selected_hosts)
    return _RankChoice(lab, hosts, design, must_be_patched)


@contextmanager
def _hold_patch(
    light: LightGrant, leased_lab: Lab, runs_dir: Path, cleanup: CleanupProcess, add_note: AddNote
) -> Iterator[None]:
    """Apply the design for the duration of the block, then restore the leased hosts."""
    lease_id, start_s = light.lease_keeper.lease_id, time.monotonic()
    with deny_light(), open_under_lease(leased_lab, runs_dir, lease_id) as session:
        state = LabState.read(session)
        cleanup.register_state(state, [host.name for host in leased_lab.hosts], lease_id)
    try:
        with deny_light():
            assert light.design is not None
            with stop_on_interrupt(add_note), open_under_lease(light.lab, runs_dir, lease_id) as session:
                report = session.bring_up(light.design, take_over=True)
            if not report.verify_report.ok:
                details = "; ".join(
                    f"{finding.kind}: {finding.subject}: {finding.detail}"
                    for finding in report.verify_report.findings[:5]
                )
                raise LightDenied(f"no light: the proof after patching has findings: {details}")
        light.patch_s, light.was_patched = time.monotonic() - start_s, report.plan.has_changes
        change_text = "patched" if light.was_patched else "in place"
        add_note(
            f"{format_count(len(report.plan.circuits), 'circuit')} {change_text} and verified in {light.patch_s:.1f} s"
        )
        yield
    finally:
        with _ignore_first_interrupt(add_note):
            try:
                with allow_stop():  # the cancellation that ended the program must not stop the restoration
                    process = get_current_process()
                    restore_hosts(state, leased_lab, runs_dir, lease_id, process, cleanup.reason)
            except Exception as error:  # noqa: BLE001 - whatever it is, the hosts are not restored
                light.problem = mark_hosts_not_restored(leased_lab, runs_dir, cleanup.reason, error)
                add_note(light.problem)
            cleanup.pending_steps.discard("hosts")


@contextmanager
def _ignore_first_interrupt(add_note: AddNote) -> Iterator[None]:
    """Ignore the first Ctrl-C in the block. The second raises, and the cleanup process does the rest."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ignore_interrupt(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        add_note("restoring the hosts; press Ctrl-C again to leave that to the cleanup process")

    previous_handler = signal.signal(signal.SIGINT, ignore_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)


def restore_hosts(
    state: LabState, leased_lab: Lab, runs_dir: Path, lease_id: str, changing_process: str, reason: str
) -> None:
    """Restore leased hosts to an earlier state. `changing_process` is the process that changed them.

    Circuits are restored even if a host does not answer. Raises the errors of `LabState.restore`.
    """

    def reopen(lab: Lab) -> AbstractContextManager[LabSession]:
        return open_under_lease(lab, runs_dir, lease_id, allow_partial=True)

    with reopen(leased_lab) as session:
        state.restore(session, reopen, f"after {reason}", owner=changing_process)


def mark_hosts_not_restored(leased_lab: Lab, runs_dir: Path, reason: str, error: Exception) -> str:
    """Mark hosts that could not be restored as faulty, so that no lease grants them. Return the reason as a sentence.

    If the lease has ended, others may already have the hosts, so they are not marked.
    """
    problem = f"the hosts are not restored after {reason}: {error}"
    if isinstance(error, LeaseDenied):
        return problem
    database = Database(get_database_address(runs_dir))
    try:
        store = LeaseStore(database, leased_lab.name)
        store.write_checks({f"host:{host.name}": problem for host in leased_lab.hosts})
    finally:
        database.close()
    return problem
