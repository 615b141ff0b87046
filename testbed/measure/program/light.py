"""Light for a program: hosts are leased, patched, verified, and given back at the end.

A program on a lease of its user gets the circuits as they are, unless a topology is named.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from lightbed.wording import count_noun
from ocs_drivers.errors import OcsError
from testbed.errors import (
    ApplyFailed,
    DriftError,
    LeaseDenied,
    LightDenied,
    PlanStale,
    TestbedError,
    UsageError,
)
from testbed.lab.hosts.environment import program_environment
from testbed.lab.model import Lab, LabHost, shard_of
from testbed.leases.choice import get_selected_lease, select_lease
from testbed.leases.fence import database_errors
from testbed.leases.heartbeat import keep_alive
from testbed.leases.model import parts_of
from testbed.leases.store import LeaseStore
from testbed.measure.program.keeper import Keeper
from testbed.operate.borrow import HostNeeds, HostRequest, LabState
from testbed.operate.choice import choose_design, state_design
from testbed.operate.design import Design, design_of_intent
from testbed.operate.engine.consent import stop_on_interrupt, stoppable
from testbed.operate.intent import load_intents, select_in_force
from testbed.operate.journal import journal_in
from testbed.operate.named_topology import NamedTopology
from testbed.operate.session import LabSession, open_lab
from testbed.storage.address import address_in
from testbed.storage.database import Database
from testbed.storage.owner import this_process

TTL_S = 60.0
"""Duration of the lease without a heartbeat: it expires so long after its machine has died."""


@dataclass(frozen=True, slots=True)
class LightRequest:
    """A request for light: a number of hosts, the topology, which may name hosts, and the wait for the lease."""

    nodes: int | None
    topology: NamedTopology
    wait_s: float


@dataclass(slots=True)
class Light:
    """The hosts that a program has, in the order of its ranks.

    `design` is the topology in force on them, None if nobody knows one; its node i is `lab.hosts[i]`. `is_patched` is
    False if it was there before. `problem` says after the end why the hosts could not be restored.
    """

    lab: Lab
    hosts: tuple[LabHost, ...]
    lease: str
    design: Design | None = None
    is_patched: bool = False
    patch_s: float = 0.0
    outage_s: float = 0.0
    problem: str = ""
    notes: list[str] = field(default_factory=list)


@contextmanager
def open_under_lease(lab: Lab, runs_dir: Path, lease: str, *, partial: bool = False) -> Iterator[LabSession]:
    """Open a lab and its hosts for changes under a lease. Epochs are not stored: a program is no intent for the lab."""
    before = get_selected_lease()
    select_lease(lease)
    try:
        with (
            journal_in(runs_dir) as journal,
            open_lab(lab, journal, keep_intent=False, partial=partial) as session,
        ):
            yield session
    finally:
        select_lease(before)


@contextmanager
def provide_light(
    lab: Lab, request: LightRequest, runs_dir: Path, keeper: Keeper, note: Callable[[str], None]
) -> Iterator[Light]:
    """Provide hosts with light, and give them back at the end of the block.

    Raises `LightDenied` if the lease or the light is not to be had, and `UsageError`, `PlanFileError`, `IntentError`
    and `TopologyError` for a request that cannot be met.
    """
    database = Database(address_in(runs_dir))
    try:
        with ExitStack() as stack:
            with _deny(), database_errors(database):
                store = LeaseStore(database, lab.name)
                lease, names = _lease_hosts(stack, lab, request, runs_dir, store, keeper, note)
                chosen = _choose_hosts(lab, request, runs_dir, names)
                light = _find_light(lab, request, runs_dir, lease, chosen)
            if light.is_patched:
                leased = shard_of(lab, names) if len(names) < len(lab.hosts) else lab
                stack.enter_context(_patch(light, leased, runs_dir, keeper, note))
            yield light
    finally:
        database.close()


@contextmanager
def _deny() -> Iterator[None]:
    """Convert errors of leases, switches and proofs into `LightDenied`."""
    try:
        yield
    except LightDenied:
        raise
    except (LeaseDenied, ApplyFailed, DriftError, PlanStale, OcsError) as error:
        raise LightDenied(f"no light: {error}") from error


def _lease_hosts(
    stack: ExitStack,
    lab: Lab,
    request: LightRequest,
    runs_dir: Path,
    store: LeaseStore,
    keeper: Keeper,
    note: Callable[[str], None],
) -> tuple[str, tuple[str, ...]]:
    """Return a lease and the hosts that it covers: the user's, or one of our own that `stack` ends."""
    selected = get_selected_lease()
    if selected:
        held = store.get(selected)
        if held.state != "granted":
            raise LightDenied(f"lease {selected} is {held.state}: wait until it is granted")
        return selected, tuple(
            host.name for host in lab.hosts if parts_of(lab, [f"host:{host.name}"]) <= held.parts
        )
    names = _hosts_of_topology(lab, request.topology, runs_dir)
    needs = HostNeeds(hosts=request.nodes, names=names)
    asking = HostRequest(lab, needs, store, request.wait_s, keeper.reason, TTL_S)
    lease, hosts = asking.acquire(lambda wanted: note(f"waiting for the lease of {wanted}"))
    keeper.note_lease(lease.id)
    stack.callback(_release, store, lease.id, keeper)
    stack.enter_context(keep_alive(lambda: store.extend(lease.id), TTL_S / 4))
    note(f"lease {lease.id}: {', '.join(hosts)}")
    return lease.id, hosts


def _release(store: LeaseStore, lease: str, keeper: Keeper) -> None:
    if keeper.is_settled:  # else the keeper restores the hosts, under this lease
        with suppress(LeaseDenied):  # somebody has ended it meanwhile
            store.release(lease)


def _hosts_of_topology(lab: Lab, named: NamedTopology, runs_dir: Path) -> tuple[str, ...]:
    """Return the hosts that options, a plan file or an epoch name; none if any hosts will do."""
    if named.plan_file is not None:
        from testbed.design.plans.file import read_plan  # with all workloads that a plan may be for

        return tuple(read_plan(named.plan_file).hosts)
    if named.epoch is not None:
        return tuple(host.name for host in choose_design(lab, named, runs_dir).lab.hosts)
    return named.hosts


def _choose_hosts(lab: Lab, request: LightRequest, runs_dir: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts of the program among those that are leased."""
    wanted = _hosts_of_topology(lab, request.topology, runs_dir)
    missing = [name for name in wanted if name not in names]
    if missing:
        raise LightDenied(f"the lease does not cover host {', '.join(missing)}: request one that does")
    chosen = wanted or tuple(names[: request.nodes or len(names)])
    if request.nodes not in (None, len(chosen)):
        where = "the topology names" if wanted else "the lease covers"
        raise UsageError(f"--nodes {request.nodes}, but {where} {count_noun(len(chosen), 'host')}")
    if not chosen:
        raise LightDenied("the lease covers no whole host: request one of host:NAME")
    return chosen


def _find_light(
    lab: Lab, request: LightRequest, runs_dir: Path, lease: str, chosen: tuple[str, ...]
) -> Light:
    """Return the light for the hosts: the topology that is named, else the one in force, else the default.

    Without a named topology, a lease of the user and a single host need no patch.
    """
    here, named = shard_of(lab, chosen), request.topology
    if named.epoch is not None:
        choice = choose_design(lab, named, runs_dir)
        return _lit(choice.lab, lease, choice.design, is_patched=True)
    if named.has_topology:
        there, design, _ = state_design(here, named)
        return _lit(there, lease, design, is_patched=True)
    in_force = next(
        (
            intent
            for intent in select_in_force(load_intents(runs_dir, lab.name))
            if set(chosen) <= set(intent.hosts)
        ),
        None,
    )
    is_own = lease != get_selected_lease()
    if in_force is not None and (not is_own or set(in_force.hosts) == set(chosen)):
        there, design = design_of_intent(lab, in_force)
        return _lit(there, lease, design, is_patched=is_own, only=chosen)
    if not is_own or len(chosen) == 1:
        return Light(here, here.hosts, lease)
    there, design, _ = state_design(here, named)
    return _lit(there, lease, design, is_patched=True)


def _lit(lab: Lab, lease: str, design: Design, *, is_patched: bool, only: Sequence[str] = ()) -> Light:
    """Return the light of a design; its ranks follow a ring of the topology."""
    ranks = program_environment(lab, design.topology).ranks
    hosts = tuple(host for host in ranks if not only or host.name in only)
    return Light(lab, hosts, lease, design, is_patched)


@contextmanager
def _patch(
    light: Light, leased: Lab, runs_dir: Path, keeper: Keeper, note: Callable[[str], None]
) -> Iterator[None]:
    """Bring the design into force within the block, and restore the leased hosts after it."""
    begin_s = time.monotonic()
    with _deny(), open_under_lease(leased, runs_dir, light.lease) as session:
        state = LabState.read(session)
        keeper.note_state(state, [host.name for host in leased.hosts], light.lease)
    try:
        with _deny():
            assert light.design is not None
            with (
                stop_on_interrupt(note),
                open_under_lease(light.lab, runs_dir, light.lease) as session,
            ):
                report = session.bring_up(light.design, light.notes.append, take_over=True)
            if not report.verified.ok:
                details = "; ".join(
                    f"{each.kind}: {each.subject}: {each.detail}" for each in report.verified.findings[:5]
                )
                raise LightDenied(f"no light: the proof after patching has findings: {details}")
        light.patch_s, light.outage_s = time.monotonic() - begin_s, report.apply.outage_s
        circuits = count_noun(len(report.plan.circuits), "circuit")
        change = "patched" if report.plan.has_changes else "in place"
        note(f"{circuits} {change} and verified in {light.patch_s:.1f} s")
        yield
    finally:
        try:
            with stoppable():  # a cancelled caller must not stop this, too
                restore_hosts(state, leased, runs_dir, light.lease, this_process(), keeper.reason)
        except (TestbedError, OcsError, OSError) as error:
            light.problem = mark_not_restored(leased, runs_dir, keeper.reason, error)
            note(light.problem)
        keeper.settle()


def restore_hosts(state: LabState, leased: Lab, runs_dir: Path, lease: str, owner: str, reason: str) -> None:
    """Restore leased hosts to an earlier state; `owner` is the process that changed them.

    Devices that do not answer are left out. Raises what `LabState.restore` raises.
    """

    def reopen(lab: Lab) -> AbstractContextManager[LabSession]:
        return open_under_lease(lab, runs_dir, lease, partial=True)

    with reopen(leased) as session:
        state.restore(session, reopen, f"after {reason}", owner=owner)


def mark_not_restored(leased: Lab, runs_dir: Path, reason: str, error: Exception) -> str:
    """Mark hosts that could not be restored as faulty, so that they are not granted; return why."""
    problem = f"the hosts are not restored after {reason}: {error}"
    database = Database(address_in(runs_dir))
    try:
        store = LeaseStore(database, leased.name)
        store.write_checks({f"host:{host.name}": problem for host in leased.hosts})
    finally:
        database.close()
    return problem
