"""Rules for a failed GPU, host, switch or link in a lab whose hosts have several GPUs.

The GPUs of a host form a domain of high bandwidth; the GPUs of one number, one in each host, form a rail. The rules are
those of Rail-only (Wang et al., HotI 2024):

1. A link or a switch fails: the GPUs beside it are cut off their rail.
2. A host fails: its work moves to an idle host. The rails keep their circuits.
3. A GPU fails and its host has an idle one: an optical switch puts the idle GPU into the rail.
4. A GPU fails and its host is full: the work of a small host moves to an idle one. A large host needs another optical
   switch, which puts a spare GPU of another host into the rail.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from lightbed.wording import count_noun, list_some
from ocs_drivers.model import Snapshot
from testbed.design.model import Link, Nic, Wiring
from testbed.errors import TopologyError
from testbed.lab.model import Lab, LabHost
from testbed.operate.light import Loss

MAX_MIGRATED = 8
"""Most GPUs of a host whose work is moved as a whole: those of a DGX. The paper says "small" and "large" only."""

Action = Literal["detour", "move", "migrate", "add_switch"]


class Gpu(NamedTuple):
    """A GPU of a lab, by node and number."""

    node: int
    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureAdvice:
    """The rule for one failure, the GPUs that it takes from their rails, and what to do.

    `target` is the GPU or host that takes over; empty if there is none, or if the rule needs none.
    """

    rule: Literal[1, 2, 3, 4]
    subject: str
    gpus_lost: tuple[str, ...]
    action: Action
    target: str
    text: str


def gpu_label(lab: Lab, gpu: Gpu) -> str:
    """Return the label of a GPU, `host/gpu0`."""
    return f"{lab.hosts[gpu.node].name}/gpu{gpu.number}"


def has_domains(lab: Lab) -> bool:
    """Return whether a host of the lab has several GPUs."""
    return any(count_gpus(host) > 1 for host in lab.hosts)


def count_gpus(host: LabHost) -> int:
    """Return the number of GPUs of a host: 1 if the lab file does not say."""
    return host.gpus or 1


def parse_gpu(lab: Lab, label: str) -> Gpu:
    """Return the GPU of a label. Raises `TopologyError` if the lab has none of this label."""
    name, _, number = label.partition("/gpu")
    for node, host in enumerate(lab.hosts):
        if host.name == name and number.isascii() and number.isdigit() and int(number) < count_gpus(host):
            return Gpu(node, int(number))
        if host.name == name:
            last = count_gpus(host) - 1
            known = f"{name}/gpu0" + (f" to {name}/gpu{last}" if last else "")
            raise TopologyError(
                f"the lab has no GPU '{label}': {name} has {known}. `gpus` of the lab file is their number"
            )
    names = list_some([host.name for host in lab.hosts])
    raise TopologyError(f"the lab has no GPU '{label}': write HOST/gpuN with one of the hosts {names}")


def find_nics_lost(lab: Lab, failed: Collection[Gpu]) -> frozenset[Nic]:
    """Return the NICs that serve failed GPUs only."""
    beside: dict[Nic, set[Gpu]] = {}
    for node, host in enumerate(lab.hosts):
        for number in range(count_gpus(host)):
            for index in host.nics_beside(number):
                beside.setdefault(Nic(node, index), set()).add(Gpu(node, number))
    return frozenset(nic for nic, gpus in beside.items() if gpus <= set(failed))


def list_failed_gpus(lab: Lab, losses: Iterable[Loss]) -> Iterator[Gpu]:
    """Yield the GPUs that losses say have failed."""
    for loss in losses:
        node, index = loss.nic
        if loss.fibre == "gpu":
            for number in range(count_gpus(lab.hosts[node])):
                if index in lab.hosts[node].nics_beside(number):
                    yield Gpu(node, number)


def find_gpu_losses(lab: Lab, wiring: Wiring, failed: Collection[Gpu]) -> Iterator[Loss]:
    """Yield the losses that failed GPUs cause: one for each of their NICs that has a link."""
    into, out = wiring.link_into, wiring.link_from
    for nic in sorted(find_nics_lost(lab, failed)):
        link = out.get(nic) or into.get(nic)
        if link is not None:
            yield Loss(nic, "gpu", link)


def advise_on_failures(
    lab: Lab,
    wiring: Wiring,
    failed: Collection[Gpu],
    *,
    losses: Iterable[Loss] = (),
    off: Collection[str] = (),
    links: Iterable[Link] = (),
    seen: Mapping[str, Snapshot] | None = None,
) -> Iterator[FailureAdvice]:
    """Yield the rule for each failure, in the order of the rules. Pure.

    `losses` are lost fibres, `off` hosts and switches that do not answer, `links` those after the planned repair.
    A host is idle if the topology has no link of it and the switches (`seen`) hold no circuit at its ports.
    """
    idle = sorted(_find_idle_hosts(lab, wiring, seen or {}) - set(off))
    for loss in losses:
        if loss.fibre != "gpu" and count_gpus(lab.hosts[loss.nic.node]) > 1:
            yield _advise_on_fibre(lab, loss)
    for switch in lab.switches:
        if switch.name in off:
            yield _advise_on_switch(lab, switch.name)
    for node, host in enumerate(lab.hosts):
        if host.name in off and count_gpus(host) > 1:
            labels = tuple(gpu_label(lab, Gpu(node, number)) for number in range(count_gpus(host)))
            text = f"{host.name} is off: {_migrate(host, idle)}; the rails keep their circuits"
            yield _advice(2, host.name, labels, "migrate", _first(idle), text)
    spares = _find_spares(lab, wiring, failed, links)
    advice = [_advise_on_gpu(lab, gpu, spares.get(gpu), idle) for gpu in sorted(failed)]
    yield from sorted(advice, key=lambda one: one.rule)


def _advise_on_fibre(lab: Lab, loss: Loss) -> FailureAdvice:
    nic = lab.nic_label(loss.nic)
    labels = tuple(_labels_beside(lab, loss.nic))
    text = f"a fibre of {nic} is lost, so {' and '.join(labels)} cannot use its rail: see the detours and new circuits"
    return _advice(1, nic, labels, "detour", "", text)


def _advise_on_switch(lab: Lab, name: str) -> FailureAdvice:
    nics = (
        Nic(node, index)
        for node, host in enumerate(lab.hosts)
        for index, nic in enumerate(host.nics)
        if name in (nic.transmit.switch, nic.receive.switch)
    )
    labels = tuple(dict.fromkeys(label for nic in nics for label in _labels_beside(lab, nic)))
    gpus = f"{count_noun(len(labels), 'GPU')} ({list_some(labels)})"
    text = f"{name} is off: {gpus} cannot use their rail until it answers"
    return _advice(1, name, labels, "detour", "", text)


def _advise_on_gpu(lab: Lab, gpu: Gpu, spare: Gpu | None, idle: Sequence[str]) -> FailureAdvice:
    label, host = gpu_label(lab, gpu), lab.hosts[gpu.node]
    if spare is not None:
        ends = [lab.nic_label(Nic(gpu.node, index)) for index in host.nics_beside(spare.number)]
        name = gpu_label(lab, spare)
        text = (
            f"{label} has failed and {name} is idle: it joins the rail, with circuits at {' and '.join(ends)}"
        )
        return _advice(3, label, (label,), "move", name, text)
    if count_gpus(host) <= MAX_MIGRATED:
        text = (
            f"{label} has failed and no other GPU of {host.name} can take its place: {_migrate(host, idle)}"
        )
        return _advice(4, label, (label,), "migrate", _first(idle), text)
    gpus = count_noun(count_gpus(host), "GPU")
    text = (
        f"{label} has failed, no other GPU of {host.name} can take its place, and {gpus} are too many to move: "
        "add an optical switch that can put a spare GPU of another host into this rail"
    )
    return _advice(4, label, (label,), "add_switch", "", text)


def _advice(
    rule: Literal[1, 2, 3, 4],
    subject: str,
    gpus_lost: tuple[str, ...],
    action: Action,
    target: str,
    text: str,
) -> FailureAdvice:
    return FailureAdvice(
        rule=rule, subject=subject, gpus_lost=gpus_lost, action=action, target=target, text=text
    )


def _find_spares(lab: Lab, wiring: Wiring, failed: Collection[Gpu], links: Iterable[Link]) -> dict[Gpu, Gpu]:
    """Return for each failed GPU the idle one of its host whose NICs get links; GPUs without one are left out."""
    linked, ends = ({nic for link in some for nic in link} for some in (wiring.links, links))
    spares: dict[Gpu, Gpu] = {}
    for gpu in sorted(failed):
        host = lab.hosts[gpu.node]
        for number in range(count_gpus(host)):
            spare = Gpu(gpu.node, number)
            nics = {Nic(gpu.node, index) for index in host.nics_beside(number)}
            is_free = spare not in failed and spare not in spares.values()
            if is_free and nics & ends and not nics & linked:
                spares[gpu] = spare
                break
    return spares


def _migrate(host: LabHost, idle: Sequence[str]) -> str:
    work = f"move the work of {host.name} ({count_noun(count_gpus(host), 'GPU')})"
    return f"{work} to {idle[0]}, which is idle" if idle else f"{work} when a host is idle; none is now"


def _first(names: Sequence[str]) -> str:
    return names[0] if names else ""


def _labels_beside(lab: Lab, nic: Nic) -> Iterator[str]:
    host = lab.hosts[nic.node]
    for number in range(count_gpus(host)):
        if nic.index in host.nics_beside(number):
            yield gpu_label(lab, Gpu(nic.node, number))


def _find_idle_hosts(lab: Lab, wiring: Wiring, seen: Mapping[str, Snapshot]) -> set[str]:
    """Return the hosts, those of other jobs too, without a link in the topology and without a circuit."""
    linked = {nic.node for link in wiring.links for nic in link}
    used = {
        (name, port)
        for name, snapshot in seen.items()
        for pair in snapshot.connections.pairs
        for port in pair
    }
    candidates = [host for node, host in enumerate(lab.hosts) if node not in linked]
    return {
        host.name
        for host in (*candidates, *lab.others)
        if not any((end.switch, end.port) in used for nic in host.nics for end in (nic.transmit, nic.receive))
    }
