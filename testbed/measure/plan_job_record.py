"""Runs of a plan as a job on record, and what its links have carried since the last one."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

from lightbed.wording import counted
from testbed.errors import HostError
from testbed.lab.hosts.fleet import Fleet
from testbed.lab.model import Lab
from testbed.measure.plan_job import LinkCount, PlanRun, payload_between
from testbed.measure.results.records import Json

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.measure.results.store import RunStore
    from testbed.operate.choice import MeantDesign
    from testbed.operate.session import LabSession

PHASE = "plan job"


@dataclass(frozen=True, slots=True)
class JobOnRecord:
    """The last run of an epoch's plan: its links, and the counters of the NICs when its iterations began."""

    links: tuple[LinkCount, ...]
    before: Mapping[str, Sequence[int]]


def to_json(done: PlanRun, epoch: int | None) -> dict[str, Json]:
    """Return the data of a phase named `PHASE`."""
    return {
        "epoch": epoch,
        "factor": done.factor,
        "predicted_s": done.predicted_s,
        "times_s": list(done.times_s),
        "busy": done.busy,
        "links": [asdict(link) for link in done.links],
        "before": {nic: list(counts) for nic, counts in done.before.items()},
    }


def last_job(store: RunStore, lab: str, epoch: int | None) -> JobOnRecord | None:
    """Return the last run of an epoch of a lab; None where there is none."""
    for phase in store.phases_of(lab, PHASE):
        data = cast("Mapping[str, Any]", phase.data)
        if epoch is not None and data["epoch"] == epoch:
            return JobOnRecord(tuple(LinkCount(**link) for link in data["links"]), data["before"])
    return None


def links_since(job: JobOnRecord, fleet: Fleet, lab: Lab) -> tuple[LinkCount, ...]:
    """Return the links of a run with what their NICs have counted from its begin until now.

    `counted_bytes` is None of NICs that cannot be read, or began to count again.
    """
    now = read_counters(fleet, lab)
    return tuple(_since(link, job.before, now) for link in job.links)


def links_since_job(session: LabSession, meant: MeantDesign, runs_dir: Path) -> tuple[LinkCount, ...]:
    """Return what the links have carried since the plan last ran as a job; none where it did not."""
    if meant.intent is None or meant.stated.plan_text is None or session.fleet is None:
        return ()
    from testbed.measure.results.store import RunStore  # SQLAlchemy: only where a plan ran

    job = last_job(RunStore(runs_dir), meant.lab.name, meant.intent.epoch)
    return links_since(job, session.fleet, meant.lab) if job else ()


def link_lines(links: Sequence[LinkCount]) -> list[str]:
    """Return how the payload of links agrees with the plan, in a sentence; none without links that were counted."""
    worst = worst_payload(links)
    if worst is None:
        return []
    again = sum(link.retransmitted_bytes for link in links)
    links_text = counted(len(links), "link")
    return [f"payload of {links_text} within {worst * 100:.1f} % of the plan, {again} bytes sent again"]


def _since(
    link: LinkCount, before: Mapping[str, Sequence[int]], now: Mapping[str, Sequence[int]]
) -> LinkCount:
    nic = link.link.partition(" -> ")[0]
    counted = payload_between(before[nic], now[nic]) if nic in before and nic in now else None
    return LinkCount(link.link, link.planned_bytes, link.simulated_bytes, counted, link.retransmitted_bytes)


def read_counters(fleet: Fleet, lab: Lab) -> dict[str, tuple[int, int]]:
    """Return bytes and packets that each NIC has sent, by `host/nic`, of the hosts that the fleet reaches."""
    reached = {host.name for host in fleet.hosts}
    hosts = [host for host in lab.hosts if host.name in reached]
    folder = "/sys/class/net/{}/statistics/tx_{}"
    commands = {
        host.name: shlex.join(
            ["cat", *(folder.format(nic.name, what) for nic in host.nics for what in ("bytes", "packets"))]
        )
        for host in hosts
    }
    try:
        done = fleet.run(commands)
    except HostError:
        return {}
    found = {}
    for host in hosts:
        values = [int(word) for word in done[host.name].stdout.split()]
        if len(values) == 2 * len(host.nics):
            for place, nic in enumerate(host.nics):
                found[f"{host.name}/{nic.name}"] = (values[2 * place], values[2 * place + 1])
    return found


def worst_payload(links: Iterable[LinkCount]) -> float | None:
    """Return how far the payload of a link is from the plan at most, as a part of it; None where none was counted."""
    off = [abs(link.difference) for link in links if link.difference is not None]
    return max(off, default=None)
