"""`testbed discover`: which NIC stands at which port, found by light and probe frames and written into a lab file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbed.wording import counted
from testbed.cli import options
from testbed.cli.output import print_answer
from testbed.cli.unfinished import with_unfinished
from testbed.commands.documents import CHANGES, DONE
from testbed.commands.progress import narrate

if TYPE_CHECKING:
    from testbed.lab.model import Lab
    from testbed.operate.discovery.model import Discovered

SETTLE_SIMULATED_S, SETTLE_REAL_S = 0.2, 3.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("discover")(discover)


def discover(
    bare: Annotated[
        Path, typer.Argument(metavar="BARE", help="Lab file whose NICs need no `transmit` and `receive`.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="Lab file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")] = False,
    settle_s: Annotated[
        float | None,
        typer.Option(
            "--settle", metavar="SECONDS", min=0, max=600, help="Time that a NIC needs to find its carrier."
        ),
    ] = None,
    really_move: options.ReallyMove = None,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Find which NIC stands at which port and write a lab file. Exit code 2 when some are not found.

    Only free ports are patched, and all is put back at the end. After a crash the next discovery goes on.
    """
    from testbed.lab.inventory import load_bare_lab
    from testbed.lab.simulated.lifecycle import find_running, hosts_of
    from testbed.lab.wired_file import check_new_file
    from testbed.operate.apply import check_permission

    lab = find_running(load_bare_lab(bare))
    check_new_file(output, replace=force)
    check_permission(lab, really_move)
    settle = settle_s if settle_s is not None else SETTLE_SIMULATED_S if lab.simulated else SETTLE_REAL_S
    found = _discover(lab, runs_dir, settle)
    kept_text = _write(bare, found, output, force=force)
    document = {"lab": lab.name, "simulated": lab.simulated, "hosts": hosts_of(lab)} | _document(found)
    document |= {"output": str(output), "comments_kept": kept_text}
    lines = _lines(lab, found, output, kept_text=kept_text)
    document, lines = with_unfinished(document, lines, runs_dir, lab)
    print_answer(document, [*lines, _following(lab, runs_dir, output)], as_json=as_json)
    return DONE if all(nic.is_found for nic in found.nics) and not found.busy_nics else CHANGES


def _following(lab: Lab, runs_dir: Path, output: Path) -> str:
    return f"next: testbed plan {output}{_topology_to_name(lab, runs_dir)}"


def _discover(lab: Lab, runs_dir: Path, settle_s: float) -> Discovered:
    from testbed.errors import HostError
    from testbed.lab.simulated.lifecycle import hosts_of
    from testbed.operate.discovery.devices import Devices
    from testbed.operate.discovery.record import DiscoveryRecord
    from testbed.operate.discovery.run import discover as run_discovery
    from testbed.operate.journal import journal_in
    from testbed.operate.session import open_lab

    if hosts_of(lab) == "model":
        what = f"the hosts of lab '{lab.name}' are only modelled and send no probe frames"
        raise HostError(
            f"{what}; start it as root with `testbed sim up --hosts kernel`", host=lab.hosts[0].name
        )
    with journal_in(runs_dir) as journal, open_lab(lab, journal) as session, narrate() as narrator:
        assert session.fleet is not None  # the hosts are real to the kernel
        devices = Devices(lab, session.switches, session.fleet, journal, settle_s=settle_s)
        return run_discovery(devices, DiscoveryRecord(journal, lab.name), narrator.note)


def _write(bare: Path, found: Discovered, output: Path, *, force: bool) -> bool:
    """Write the lab file; False where the rows of BARE could not be kept as they were written."""
    from testbed.lab.wired_file import write_new_file
    from testbed.operate.discovery.lab_rows import wired_lab_text

    text, kept_text = wired_lab_text(bare, found, output)
    write_new_file(output, text, replace=force)
    return kept_text


def _document(found: Discovered) -> dict[str, Any]:
    return {
        "nics": [
            {
                "nic": "/".join(nic.nic),
                **{
                    way: {
                        "verdict": fibre.verdict,
                        "port": _port(fibre.port) if fibre.port else None,
                        "candidates": [_port(port) for port in fibre.candidates],
                    }
                    for way, fibre in (("transmit", nic.transmit), ("receive", nic.receive))
                },
            }
            for nic in found.nics
        ],
        "rounds": found.rounds,
        "circuit_changes": found.circuit_changes,
        "resumed": found.resumed,
        "dead": found.fibres("dead"),
        "uncertain": found.fibres("uncertain"),
        "in_use": {"circuits": found.busy_circuits, "nics": ["/".join(nic) for nic in found.busy_nics]},
        "unnamed_light": [_port(port) for port in found.nameless],
        "notes": found.notes,
    }


def _port(port: tuple[str, int]) -> str:
    return f"{port[0]}:{port[1]}"


def _lines(lab: Lab, found: Discovered, output: Path, *, kept_text: bool) -> list[str]:
    fibres = 2 * len(found.nics)
    heading = f"{'SIMULATED ' if lab.simulated else ''}lab {lab.name}: {len(found.fibres('found'))} of {fibres} fibres"
    left = [*found.busy_circuits, *("/".join(nic) for nic in found.busy_nics)]
    return [
        f"{heading} found in {counted(found.rounds, 'round')}, {counted(found.circuit_changes, 'change')} of circuits",
        *found.notes,
        *(f"dead: {fibre}" for fibre in found.fibres("dead")),
        *(f"uncertain: {fibre}" for fibre in found.fibres("uncertain")),
        *(f"in use, left alone: {what}" for what in left),
        *(f"light of nobody in this lab enters {_port(port)}" for port in found.nameless),
        f"written: {output}" + ("" if kept_text else "; comments of the bare file could not be kept"),
    ]


def _topology_to_name(lab: Lab, runs_dir: Path) -> str:
    """Return the option that names the default topology where an epoch of the lab as it was before is stored."""
    from testbed.operate.intent import stored_intents

    return " --method geometric" if stored_intents(runs_dir, lab.name) else ""
