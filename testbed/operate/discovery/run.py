"""A discovery from beginning to end: left-overs of an earlier one, free ports, rounds, and all put back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lightbed.wording import counted
from testbed.lab.model import UNKNOWN_FIBRE, Lab
from testbed.operate.discovery.devices import Devices
from testbed.operate.discovery.evidence import Evidence
from testbed.operate.discovery.model import Discovered, History, NicName, Port, Problem, Round
from testbed.operate.discovery.planner import most_rounds, plan_rounds
from testbed.operate.discovery.record import DiscoveryRecord, Unfinished

Note = Callable[[str], None]


def discover(
    devices: Devices, record: DiscoveryRecord, note: Note = lambda _text: None, *, limit: int | None = None
) -> Discovered:
    """Find the fibres of every NIC of the lab file whose row lacks one.

    Raises `DriftError` or `PortBusy` when somebody else patches meanwhile, `ApplyFailed`, `HostError` and the drivers'
    errors; circuits are removed and interfaces put back in any case, as far as devices answer.
    """
    others = record.unfinished()
    killed = tuple(one for one in others if not one.is_put_back)
    notes = _remove_leftovers(devices, killed)
    found_down = devices.interfaces_down()
    down = found_down.intersection(*(one.down for one in killed))  # the rest was set down by those
    try:
        devices.set_interfaces(found_down, up=True)
        held = devices.held()
        sought, busy = _sought(devices, wanted=_without_fibres(devices.lab))
        inputs, outputs = devices.free_ports(held)
        problem = Problem(sought, inputs, outputs)
        kept = others[-1].rounds_for(problem) if others else ()
        record.begin(problem, down)
        found = _search(devices, record, problem, kept, note, limit or most_rounds(problem))
    except BaseException:
        devices.put_back(down)
        record.stop(killed)
        raise
    devices.put_back(down)
    record.finish(others)
    return replace(
        found,
        busy_circuits=tuple(f"{source[0]}:{source[1]} -> {target[1]}" for source, target in held.items()),
        busy_nics=busy,
        notes=notes,
        resumed=bool(kept),
        circuit_changes=devices.circuit_changes,
    )


def _without_fibres(lab: Lab) -> tuple[NicName, ...]:
    return tuple(
        (host.name, nic.name)
        for host in lab.hosts
        for nic in host.nics
        if UNKNOWN_FIBRE in (nic.transmit, nic.receive)
    )


def _remove_leftovers(devices: Devices, others: tuple[Unfinished, ...]) -> tuple[str, ...]:
    """Remove what discoveries that did not end have left, and return what is to be said of it.

    Circuits that are not exactly as such a discovery had them are somebody else's, and stay.
    """
    notes = []
    for one in others:
        there, is_its_own = one.left_behind(devices.held())
        if there and is_its_own:
            devices.remove(there)
            notes.append(f"removed {counted(len(there), 'circuit')} of a discovery that did not end")
        elif there:
            named = ", ".join(f"{source[0]}:{source[1]} -> {target[1]}" for source, target in sorted(there))
            notes.append(
                f"left alone, at ports of a discovery that did not end: {named}; somebody has patched since. "
                "Remove with `testbed switch` what nobody wants, then discover again"
            )
    return tuple(notes)


def _sought(devices: Devices, wanted: tuple[NicName, ...]) -> tuple[tuple[NicName, ...], tuple[NicName, ...]]:
    """Return NICs to look for, and those that receive light already, which somebody uses."""
    report = devices.probe()
    busy = {nic for nic, found in report.nics.items() if found.carrier}
    return (
        tuple(nic for nic in wanted if nic not in busy),
        tuple(nic for nic in wanted if nic in busy),
    )


def _search(
    devices: Devices,
    record: DiscoveryRecord,
    problem: Problem,
    kept: History,
    note: Note,
    limit: int,
) -> Discovered:
    rounds = plan_rounds(problem, limit=limit)
    earlier = dict(enumerate(kept))  # taken over as long as the same observations give the same rounds
    monitored: tuple[Port, ...] = (*problem.inputs, *problem.outputs)
    count = 0
    try:
        round_ = next(rounds)
        while True:
            again = earlier.get(count)
            if again and again[0] == round_:
                seen = again[1]
            else:
                earlier = {}
                record.intend(round_.circuits)
                seen = devices.show(round_, monitored)
            record.saw(round_, seen)
            count += 1
            note(_told(count, round_))
            round_ = rounds.send(seen)
    except StopIteration as end:
        evidence: Evidence = end.value
    return Discovered(evidence.results(), count, nameless=evidence.nameless())


def _told(count: int, round_: Round) -> str:
    off = f", {counted(len(round_.off), 'NIC')} off" if round_.off else ""
    return f"round {count} ({round_.purpose}): {counted(len(round_.circuits), 'circuit')}{off}"
