"""Attachment of a NIC of a host to a port of a board: two circuits, their light, and the host's route to the board.

The plan treats a board as a host with one NIC for each port. The plan is for a part of the lab that holds only the NIC
and the port of the attachment, so it changes only their four switch ports and the circuits there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lightbed.wording import format_count
from testbed.design.model import Link, Nic, Wiring
from testbed.errors import TopologyError, VerifyFailed
from testbed.lab.model import Lab, LabBoard, LabHost, LabNic
from testbed.leases.model import find_parts
from testbed.operate.apply import find_plan_parts
from testbed.operate.boards import BoardLink, set_board_routes
from testbed.operate.confirmation import check_none_pending
from testbed.operate.light import judge_circuits, read_light
from testbed.operate.model import ApplyResult, Circuit
from testbed.operate.plan import find_port_owners, label_pair, plan_lab, select_in_scope

if TYPE_CHECKING:
    from testbed.operate.session import LabSession

AddNote = Callable[[str], None]
_HOST_NIC, _BOARD_NIC = Nic(0, 0), Nic(1, 0)
_WIRING = Wiring(2, 1, simplex=False, links=(Link(_HOST_NIC, _BOARD_NIC), Link(_BOARD_NIC, _HOST_NIC)))


@dataclass(frozen=True, slots=True)
class Attachment:
    """A NIC of a host and a port of a board, by their names in the lab file."""

    host: str
    nic: str
    board: str
    port: str

    @property
    def labels(self) -> tuple[str, str]:
        """Labels of its two circuits: `a/nic4 -> board1/port1` and the reverse."""
        nic_label, port_label = f"{self.host}/{self.nic}", f"{self.board}/{self.port}"
        return f"{nic_label} -> {port_label}", f"{port_label} -> {nic_label}"


@dataclass(frozen=True, slots=True)
class AttachReport:
    """Circuits of an attachment, labels of the circuits that they replaced, and the result of the apply.

    `dark_duration_s` bounds the time for which the NIC had no light: from the start of the apply until both circuits
    had light. It is 0 if nothing changed.
    """

    circuits: tuple[Circuit, Circuit]
    replaced_labels: tuple[str, ...]
    apply_result: ApplyResult
    dark_duration_s: float


def attach(
    session: LabSession, attachment: Attachment, add_note: AddNote = lambda _text: None
) -> AttachReport:
    """Patch a NIC to a port of a board, check the light, and give the host its route to the board's address.

    Circuits that occupy the four ports are removed. A later `testbed apply` of a topology that needs the NIC restores
    them. `testbed resume` finishes the circuits of an interrupted attachment; attach again to set its route.
    Without a fleet (modelled hosts), no route is set. Raises `TopologyError` for names that the lab
    does not have and for fibres on two switches, `VerifyFailed` without light, `HostError`, and the errors that
    `LabSession.apply` raises.
    """
    from testbed.leases.fence import hold_fence  # imported late: a plan needs no SQLAlchemy

    lab, journal = session.lab, session.writable_journal
    attachment_lab = make_attachment_lab(lab, attachment)
    port = lab.find_board_port(attachment.board, attachment.port)
    check_none_pending(journal.directory, lab.name)
    plan = plan_lab(attachment_lab, _WIRING, session.switches, take_over=True)
    board_circuit, host_circuit = plan.circuits
    owner_by_port = find_port_owners(lab)
    replaced_labels = tuple(
        label_pair(owner_by_port, switch_plan.switch, pair)
        for switch_plan in plan.switches
        for pair in sorted(select_in_scope(switch_plan) - switch_plan.target.pairs)
    )
    add_note(f"attach {attachment.labels[0]}: {format_count(len(replaced_labels), 'circuit')} to remove")
    leased_parts = find_parts(lab, {f"host:{attachment.host}", f"board:{attachment.board}"})
    leased_parts |= find_plan_parts(attachment_lab, plan)
    with (
        hold_fence(journal.database, lab.name, leased_parts),
        session.operation("attach", attachment.labels[0]) as operation,
    ):
        start_s = time.monotonic()
        apply_result = session.apply(plan, lab=attachment_lab)
        _check_light(session, attachment_lab, plan.circuits)
        dark_duration_s = time.monotonic() - start_s if plan.has_changes else 0.0
        journal.update_operation(operation, stage="routes")
        if session.fleet is not None:
            link = BoardLink(
                attachment_lab.hosts[0], attachment_lab.get_nic(_HOST_NIC), attachment.board, port
            )
            set_board_routes(session.fleet, lab.link.mtu, (link,))
        journal.record_proof(operation, is_proven=True)
    add_note(f"{attachment.labels[0]} has light in both directions, after {dark_duration_s * 1e3:.0f} ms")
    return AttachReport((board_circuit, host_circuit), replaced_labels, apply_result, dark_duration_s)


def make_attachment_lab(lab: Lab, attachment: Attachment) -> Lab:
    """Return the lab with the NIC as node 0 and the board's port as node 1.

    `other_hosts` holds all other NICs and ports. Raises `TopologyError` for names that the lab does not have.
    """
    port = lab.find_board_port(attachment.board, attachment.port)
    host_by_name = {host.name: host for host in (*lab.hosts, *lab.other_hosts)}
    host = host_by_name.get(attachment.host)
    if host is None:
        raise TopologyError(f"{lab.path}: no host {attachment.host!r}; hosts are {', '.join(host_by_name)}")
    nic_by_name = {nic.name: nic for nic in host.nics}
    if attachment.nic not in nic_by_name:
        raise TopologyError(
            f"{lab.path}: host {host.name!r} has no NIC {attachment.nic!r}; it has {', '.join(nic_by_name)}"
        )
    board = next(candidate for candidate in lab.boards if candidate.name == attachment.board)
    other_nics = tuple(nic for nic in host.nics if nic.name != attachment.nic)
    other_nodes = [
        replace(host, nics=other_nics),
        *(other_host for other_host in host_by_name.values() if other_host is not host),
    ]
    other_nodes += [
        _make_board_host(other_board, host, omitted_port=attachment.port if other_board is board else "")
        for other_board in lab.boards
    ]
    board_host = LabHost(
        board.name,
        host.management,
        port.address,
        (LabNic(port.name, port.address, port.transmit, port.receive),),
        "",
    )
    return replace(
        lab,
        hosts=(replace(host, nics=(nic_by_name[attachment.nic],)), board_host),
        other_hosts=tuple(other_nodes),
    )


def _make_board_host(board: LabBoard, template: LabHost, *, omitted_port: str) -> LabHost:
    nics = tuple(
        LabNic(port.name, port.address, port.transmit, port.receive)
        for port in board.ports
        if port.name != omitted_port
    )
    address = board.ports[0].address
    return LabHost(board.name, template.management, address, nics, "")


def _check_light(session: LabSession, attachment_lab: Lab, circuits: tuple[Circuit, ...]) -> None:
    """Raise `VerifyFailed` unless the switches hold both circuits and, where they measure it, have light on them."""
    findings = judge_circuits(attachment_lab, circuits, read_light(circuits, session.switches))
    if findings:
        raise VerifyFailed("; ".join(f"{finding.subject}: {finding.detail}" for finding in findings))
