"""Rules for a failed GPU, host, switch or link in a lab whose hosts have several GPUs.

The GPUs of a host form a domain of high bandwidth. The GPUs with the same number, one in each host, form a rail. The
rules are those of Rail-only (Wang et al., HotI 2024):

1. A link or a switch fails: the GPUs beside it are cut off from their rail.
2. A host fails: its work moves to an idle host. The rails keep their circuits.
3. A GPU fails and its host has an idle one: an optical switch puts the idle GPU into the rail.
4. A GPU fails and its host is full: the work of a small host moves to an idle one. A large host needs another optical
   switch, which puts a spare GPU of another host into the rail.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from lightbed.wording import format_count, list_some
from ocs_drivers.model import Snapshot
from testbed.design.model import Link, Nic, Wiring
from testbed.errors import TopologyError
from testbed.lab.model import Lab, LabHost
from testbed.operate.light import Loss

MAX_MIGRATED_GPUS = 8
"""Largest number of GPUs of a host whose work moves as a whole, as in a DGX. The paper only says "small"."""

Action = Literal["detour", "wait", "move", "migrate", "add_switch"]


class Gpu(NamedTuple):
    """A GPU of a lab, by node and number."""

    node: int
    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureAdvice:
    """The rule for one failure, the GPUs that it takes from their rails, and the advice.

    `target` is the GPU or host that takes over, or empty.
    """

    rule: Literal[1, 2, 3, 4]
    subject: str
    gpus_lost: tuple[str, ...]
    action: Action
    target: str
    text: str


def label_gpu(lab: Lab, gpu: Gpu) -> str:
    """Return the label of a GPU, `host/gpu0`."""
    return f"{lab.hosts[gpu.node].name}/gpu{gpu.number}"


def has_multi_gpu_hosts(lab: Lab) -> bool:
    """Return whether a host of the lab has several GPUs."""
    return any(count_gpus(host) > 1 for host in lab.hosts)


def count_gpus(host: LabHost) -> int:
    """Return the number of GPUs of a host: 1 if the lab file does not say."""
    return host.gpus or 1


def parse_gpu(lab: Lab, label: str) -> Gpu:
    """Return the GPU of a label. Raises `TopologyError` if the lab has none of this label."""
    host_name, _, number_text = label.partition("/gpu")
    for node, host in enumerate(lab.hosts):
        if (
            host.name == host_name
            and number_text.isascii()
            and number_text.isdigit()
            and int(number_text) < count_gpus(host)
        ):
            return Gpu(node, int(number_text))
        if host.name == host_name:
            last_number = count_gpus(host) - 1
            known_gpus = f"{host_name}/gpu0" + (f" to {host_name}/gpu{last_number}" if last_number else "")
            raise TopologyError(
                f"the lab has no GPU '{label}': {host_name} has {known_gpus}. `gpus` of the lab file is their number"
            )
    host_names = list_some([host.name for host in lab.hosts])
    raise TopologyError(f"the lab has no GPU '{label}': write HOST/gpuN with one of the hosts {host_names}")


def find_lost_nics(lab: Lab, failed_gpus: Collection[Gpu]) -> frozenset[Nic]:
    """Return the NICs that serve only failed GPUs."""
    gpus_by_nic: dict[Nic, set[Gpu]] = {}
    for node, host in enumerate(lab.hosts):
        for number in range(count_gpus(host)):
            for index in host.find_nics_beside(number):
                gpus_by_nic.setdefault(Nic(node, index), set()).add(Gpu(node, number))
    return frozenset(nic for nic, gpus in gpus_by_nic.items() if gpus <= set(failed_gpus))


def list_failed_gpus(lab: Lab, losses: Iterable[Loss]) -> Iterator[Gpu]:
    """Yield the GPUs that have failed according to `losses`."""
    for loss in losses:
        node, index = loss.nic
        if loss.lost_part == "gpu":
            for number in range(count_gpus(lab.hosts[node])):
                if index in lab.hosts[node].find_nics_beside(number):
                    yield Gpu(node, number)


def find_gpu_losses(lab: Lab, wiring: Wiring, failed_gpus: Collection[Gpu]) -> Iterator[Loss]:
    """Yield the losses that failed GPUs cause: one for each of their NICs that has a link."""
    incoming_link_by_nic, outgoing_link_by_nic = wiring.link_by_receiver, wiring.link_by_transmitter
    for nic in sorted(find_lost_nics(lab, failed_gpus)):
        link = outgoing_link_by_nic.get(nic) or incoming_link_by_nic.get(nic)
        if link is not None:
            yield Loss(nic, "gpu", link)


def advise_on_failures(
    lab: Lab,
    wiring: Wiring,
    failed_gpus: Collection[Gpu],
    *,
    snapshots: Mapping[str, Snapshot],
    losses: Iterable[Loss] = (),
    unreachable_hosts: Collection[str] = (),
    links: Iterable[Link] | None = None,
) -> Iterator[FailureAdvice]:
    """Yield the rule for each failure, in the order of the rules.

    `losses` are lost fibres. `unreachable_hosts` names hosts and switches that do not answer. `links` are the links
    after the planned repair, or None if no repair is planned because a device is off. A host is idle if it has no link
    in the topology, and the switches (`snapshots`) hold no circuit at its ports. No rule applies to a failed GPU
    without a link, because it takes nothing from a rail.
    """
    linked_nics = {nic for link in wiring.links for nic in link}
    failed_gpus = {gpu for gpu in failed_gpus if not _find_nics(lab, gpu).isdisjoint(linked_nics)}
    lost_hosts = {lab.hosts[gpu.node].name for gpu in failed_gpus} | set(unreachable_hosts)
    idle_hosts = _IdleHosts(
        lab, [host for host in _list_idle_hosts(lab, wiring, snapshots) if host.name not in lost_hosts]
    )
    yield from _advise_on_fibres(lab, [loss for loss in losses if loss.lost_part != "gpu"])
    for switch in lab.switches:
        if switch.name in unreachable_hosts:
            yield _advise_on_switch(lab, switch.name)
    for node, host in enumerate(lab.hosts):
        if (
            host.name in unreachable_hosts
            and count_gpus(host) > 1
            and node in {nic.node for nic in linked_nics}
        ):
            gpu_labels = tuple(label_gpu(lab, Gpu(node, number)) for number in range(count_gpus(host)))
            text = f"{host.name} is off: {idle_hosts.describe_move(host)}; the rails keep their circuits"
            yield _make_advice(2, host.name, gpu_labels, "migrate", idle_hosts.choose(host), text)
    spare_by_gpu = _find_spares(lab, linked_nics, failed_gpus, links)
    advice = [_advise_on_gpu(lab, gpu, spare_by_gpu.get(gpu), idle_hosts) for gpu in sorted(failed_gpus)]
    yield from sorted(advice, key=lambda failure_advice: failure_advice.rule)


class _IdleHosts:
    """Idle hosts to which the work of other hosts can move. Each is used once."""

    def __init__(self, lab: Lab, idle_hosts: Iterable[LabHost]) -> None:
        self._lab = lab
        self._idle_hosts = list(idle_hosts)
        self._target_by_host: dict[str, str] = {}

    def choose(self, host: LabHost) -> str:
        """Return the idle host with enough GPUs that takes the work of a host, or "" if none is left."""
        if host.name not in self._target_by_host:
            suitable_hosts = [
                idle_host for idle_host in self._idle_hosts if count_gpus(idle_host) >= count_gpus(host)
            ]
            self._target_by_host[host.name] = suitable_hosts[0].name if suitable_hosts else ""
            self._idle_hosts = [
                idle_host for idle_host in self._idle_hosts if idle_host not in suitable_hosts[:1]
            ]
        return self._target_by_host[host.name]

    def describe_move(self, host: LabHost) -> str:
        """Return the text of the advice to move the work of a host."""
        move_text = f"move the work of {host.name} ({format_count(count_gpus(host), 'GPU')})"
        target = self.choose(host)
        return (
            f"{move_text} to {target}, which is idle"
            if target
            else f"{move_text} when a host is idle; none is now"
        )


def _advise_on_fibres(lab: Lab, losses: Iterable[Loss]) -> Iterator[FailureAdvice]:
    """Yield rule 1 for each NIC with a lost fibre in a host of several GPUs."""
    dead_nics = dict.fromkeys(loss.nic for loss in losses)
    for nic in dead_nics:
        host = lab.hosts[nic.node]
        if count_gpus(host) == 1:
            continue
        gpus = [
            Gpu(nic.node, number)
            for number in range(count_gpus(host))
            if nic.index in host.find_nics_beside(number)
        ]
        lost_labels = tuple(label_gpu(lab, gpu) for gpu in gpus if _find_nics(lab, gpu) <= dead_nics.keys())
        near_labels = " and ".join(label_gpu(lab, gpu) for gpu in gpus)
        effect = (
            f"{' and '.join(lost_labels)} cannot use the rail"
            if lost_labels
            else f"{near_labels} has one rail link fewer"
        )
        text = f"a fibre of {lab.nic_label(nic)} is lost, so {effect}: see the detours and new circuits"
        yield _make_advice(1, lab.nic_label(nic), lost_labels, "detour", "", text)


def _advise_on_switch(lab: Lab, name: str) -> FailureAdvice:
    lost_nics = {
        Nic(node, index)
        for node, host in enumerate(lab.hosts)
        for index, nic in enumerate(host.nics)
        if name in (nic.transmit.switch, nic.receive.switch)
    }
    gpus = [Gpu(node, number) for node, host in enumerate(lab.hosts) for number in range(count_gpus(host))]
    lost_labels = tuple(label_gpu(lab, gpu) for gpu in gpus if _find_nics(lab, gpu) <= lost_nics)
    gpu_text = (
        f"{format_count(len(lost_labels), 'GPU')} ({list_some(lost_labels)})" if lost_labels else "no GPU"
    )
    text = f"{name} is off: {gpu_text} cannot use the rail until it answers"
    return _make_advice(1, name, lost_labels, "wait", "", text)


def _advise_on_gpu(lab: Lab, gpu: Gpu, spare_gpu: Gpu | None, idle_hosts: _IdleHosts) -> FailureAdvice:
    label, host = label_gpu(lab, gpu), lab.hosts[gpu.node]
    if spare_gpu is not None:
        nic_labels = [
            lab.nic_label(Nic(gpu.node, index)) for index in host.find_nics_beside(spare_gpu.number)
        ]
        spare_label = label_gpu(lab, spare_gpu)
        circuits_text = f"with circuits at {' and '.join(nic_labels)}"
        text = f"{label} has failed. {spare_label} is idle and joins the rail, {circuits_text}"
        return _make_advice(3, label, (label,), "move", spare_label, text)
    if count_gpus(host) <= MAX_MIGRATED_GPUS:
        move_text = idle_hosts.describe_move(host)
        text = f"{label} has failed and no other GPU of {host.name} can take its place: {move_text}"
        return _make_advice(4, label, (label,), "migrate", idle_hosts.choose(host), text)
    gpus_text = format_count(count_gpus(host), "GPU")
    text = (
        f"{label} has failed, no other GPU of {host.name} can take its place, and {gpus_text} are too many to move: "
        "add an optical switch that can put a spare GPU of another host into this rail"
    )
    return _make_advice(4, label, (label,), "add_switch", "", text)


def _make_advice(
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


def _find_spares(
    lab: Lab, linked_nics: Collection[Nic], failed_gpus: Collection[Gpu], links: Iterable[Link] | None
) -> dict[Gpu, Gpu]:
    """Return an idle GPU of the same host whose NICs get links, for each failed GPU that has one.

    Without `links`, any idle GPU of the host counts, because a repair could use it.
    """
    new_nics = None if links is None else {nic for link in links for nic in link}
    spare_by_gpu: dict[Gpu, Gpu] = {}
    for gpu in sorted(failed_gpus):
        for number in range(count_gpus(lab.hosts[gpu.node])):
            spare_gpu = Gpu(gpu.node, number)
            nics = _find_nics(lab, spare_gpu)
            is_idle = nics.isdisjoint(linked_nics) and (new_nics is None or not nics.isdisjoint(new_nics))
            if is_idle and spare_gpu not in failed_gpus and spare_gpu not in spare_by_gpu.values():
                spare_by_gpu[gpu] = spare_gpu
                break
    return spare_by_gpu


def _find_nics(lab: Lab, gpu: Gpu) -> frozenset[Nic]:
    return frozenset(Nic(gpu.node, index) for index in lab.hosts[gpu.node].find_nics_beside(gpu.number))


def _list_idle_hosts(lab: Lab, wiring: Wiring, snapshots: Mapping[str, Snapshot]) -> Iterator[LabHost]:
    """Yield the hosts of all jobs without a link in the topology and without a circuit, in order of name."""
    linked_nodes = {nic.node for link in wiring.links for nic in link}
    used_ports = {
        (name, port)
        for name, snapshot in snapshots.items()
        for pair in snapshot.connections.pairs
        for port in pair
    }
    candidates = [host for node, host in enumerate(lab.hosts) if node not in linked_nodes]
    for host in sorted((*candidates, *lab.other_hosts), key=lambda candidate: candidate.name):
        fibre_ends = [fibre_end for nic in host.nics for fibre_end in (nic.transmit, nic.receive)]
        if all(
            fibre_end.switch in snapshots and (fibre_end.switch, fibre_end.port) not in used_ports
            for fibre_end in fibre_ends
        ):
            yield host
