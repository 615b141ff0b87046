"""Lab files with the result of a discovery: the text of a file that every command accepts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from testbed.errors import LabFileError
from testbed.lab.inventory import load_bare_lab, parse_lab, render_lab
from testbed.lab.model import UNKNOWN_FIBRE, FibreEnd, Lab, LabHost, LabNic
from testbed.lab.schema import DEFAULT_FIBRE_LOSS_DB
from testbed.lab.wired_file import NicWiring, write_wired_text
from testbed.operate.discovery.model import DiscoveryResult, FibreResult, NicKey, NicResult

IN_USE_NOTE = "in use: it received light before the discovery started"


def make_rows(result: DiscoveryResult) -> dict[NicKey, NicWiring]:
    """Return the row of every NIC of the discovery: its ports, or the reason why it cannot be used."""
    rows = {nic.nic: _make_row(nic) for nic in result.nic_results}
    return rows | {nic: NicWiring(unused=IN_USE_NOTE) for nic in result.busy_nics}


def write_lab_text(bare_file: Path, result: DiscoveryResult, output: Path) -> tuple[str, bool]:
    """Return the bare file with the results of a discovery, and whether its own text was kept.

    The text and its comments are lost if rows share YAML anchors, or if the file has relative paths and `output` is in
    another folder. Then the whole file is generated again.
    """
    rows, lab = make_rows(result), load_bare_lab(bare_file)
    try:
        text = write_wired_text(bare_file.read_text(encoding="utf-8"), rows)
        if _is_equal(parse_lab(text, output), lab, rows):
            return text, True
    except LabFileError:
        pass
    return render_lab(_wire(lab, rows)), False


def _make_row(nic: NicResult) -> NicWiring:
    descriptions = [
        _describe_fibre(direction, fibre)
        for direction, fibre in (("transmit", nic.transmit), ("receive", nic.receive))
    ]
    reason = "; ".join(description for description in descriptions if description)
    return NicWiring(_format_port(nic.transmit), _format_port(nic.receive), reason or None)


def _format_port(fibre: FibreResult) -> str | None:
    return f"{fibre.port[0]}:{fibre.port[1]}" if fibre.port else None


def _describe_fibre(direction: str, fibre: FibreResult) -> str:
    if fibre.verdict == "found":
        return ""
    ports = " or ".join(f"{switch}:{number}" for switch, number in fibre.candidates[:4])
    possible_ports = f", perhaps at {ports}" if 0 < len(fibre.candidates) <= 4 else ""
    return f"the {direction} fibre is {fibre.verdict}{possible_ports}"


def _is_equal(written_lab: Lab, lab: Lab, rows: dict[NicKey, NicWiring]) -> bool:
    """Return whether a lab that was read back from a written file equals `lab` with these rows."""
    return _collect_wiring(written_lab) == _collect_wiring(_wire(lab, rows))


def _collect_wiring(lab: Lab) -> list[object]:
    """Return the ports, unused NICs and paths to compare. Losses are left out: they may be formatted differently."""
    fibre_ends = [
        (host.name, nic.name, fibre_end.switch, fibre_end.port)
        for host in lab.hosts
        for nic in host.nics
        for fibre_end in (nic.transmit, nic.receive)
    ]
    unused_nics = [[nic.name for nic in host.unused_nics] for host in lab.hosts]
    return [fibre_ends, unused_nics, lab.ssh_key, [host.python for host in lab.hosts]]


def _wire(lab: Lab, rows: dict[NicKey, NicWiring]) -> Lab:
    return replace(lab, hosts=tuple(_wire_host(host, rows) for host in lab.hosts))


def _wire_host(host: LabHost, rows: dict[NicKey, NicWiring]) -> LabHost:
    nics_with_rows = [
        (_wire_nic(nic, rows.get((host.name, nic.name))), rows.get((host.name, nic.name)))
        for nic in host.nics
    ]
    unused_nics = tuple(nic for nic, row in nics_with_rows if row and row.unused)
    return replace(
        host, nics=tuple(nic for nic, _ in nics_with_rows if nic not in unused_nics), unused_nics=unused_nics
    )


def _wire_nic(nic: LabNic, row: NicWiring | None) -> LabNic:
    if row is None:
        return nic
    return replace(
        nic,
        transmit=_make_fibre_end(row.transmit, nic.transmit),
        receive=_make_fibre_end(row.receive, nic.receive),
    )


def _make_fibre_end(port: str | None, fibre: FibreEnd) -> FibreEnd:
    if port is None:
        return UNKNOWN_FIBRE
    switch, _, number = port.rpartition(":")
    return FibreEnd(switch, int(number), fibre.loss_db or DEFAULT_FIBRE_LOSS_DB)
