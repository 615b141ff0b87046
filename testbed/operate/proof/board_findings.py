"""Findings about boards to which NICs are attached: their light, and their answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from testbed.operate.boards import BoardLink
from testbed.operate.light import SwitchReading
from testbed.operate.model import FindingKind, LinkFinding

BOARD_DARK = FindingKind(
    "board_dark",
    "a port of a board sends no light although a NIC is attached to it",
    "check its power, its program and its transmit fibre; a simulated board needs `program` in the lab file",
    stops_packets=False,
)
BOARD_SILENT = FindingKind(
    "board_silent",
    "a port of a board has light, but does not answer its host",
    "check its program, its address, and on the host `ip route get ADDRESS` and `ip neigh`",
    stops_packets=False,
)
KINDS = (BOARD_DARK, BOARD_SILENT)


def judge_boards(
    links: tuple[BoardLink, ...],
    readings: Mapping[str, SwitchReading],
    has_answer_by_label: Mapping[str, bool],
) -> Iterator[LinkFinding]:
    """Yield a finding for each attached port without light, or without an answer to its host."""
    for link in links:
        fibre_end = link.port.transmit
        reading = readings.get(fibre_end.switch)
        power = reading.power_by_port.get(fibre_end.port) if reading else None
        if power is not None and power.below_floor:
            port_name = f"input {fibre_end.port} of {fibre_end.switch}"
            yield BOARD_DARK.report(link.label, f"no light enters {port_name} from {link.label}")
        elif has_answer_by_label.get(link.label) is False:
            nic_name = f"{link.host.name}/{link.nic.name}"
            yield BOARD_SILENT.report(
                link.label, f"{link.port.address} does not answer {link.host.name}, attached by {nic_name}"
            )
