"""`testbed discover`: find the port of every NIC by light and probe frames, and write them to a lab file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from testbed.commands.context import CommandContext
from testbed.commands.declare import REQUIRED, Command, option, output_file_option
from testbed.commands.documents import EXIT_CHANGES, EXIT_DONE, Document, UnfinishedOperation
from testbed.commands.groups import MovingCommand
from testbed.commands.progress import narrate

if TYPE_CHECKING:
    from testbed.lab.model import Lab
    from testbed.operate.discovery.model import DiscoveryResult, FibreResult, NicResult

SETTLE_SIMULATED_S, SETTLE_REAL_S = 0.2, 3.0


@dataclass(frozen=True, kw_only=True)
class Fibre:
    """One fibre: its port if the verdict is `found`, and the possible ports if it is `uncertain`."""

    verdict: str
    port: str | None
    candidates: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Nic:
    """Both fibres of a NIC."""

    nic: str
    transmit: Fibre
    receive: Fibre


@dataclass(frozen=True, kw_only=True)
class BusyElements:
    """Circuits and NICs in use, which were not touched."""

    circuits: tuple[str, ...]
    nics: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DiscoveryDocument(Document):
    """The ports of the fibres of a lab, as far as they were found, and the lab file with them."""

    lab: str
    simulated: bool
    hosts: str
    nics: tuple[Nic, ...]
    rounds: int
    circuit_changes: int
    resumed: bool
    dead: tuple[str, ...]
    uncertain: tuple[str, ...]
    in_use: BusyElements
    unnamed_light: tuple[str, ...]
    notes: tuple[str, ...]
    output: Path
    comments_kept: bool
    unfinished: tuple[UnfinishedOperation, ...] = ()

    @property
    def exit_code(self) -> int:
        """2 if a fibre was not found, or a NIC was in use."""
        fibres = [fibre for nic in self.nics for fibre in (nic.transmit, nic.receive)]
        is_complete = all(fibre.verdict == "found" for fibre in fibres) and not self.in_use.nics
        return EXIT_DONE if is_complete else EXIT_CHANGES

    def format_lines(self) -> Iterator[str]:
        """Yield the document as lines for people."""
        from lightbed.wording import format_count

        found_count = sum(
            fibre.verdict == "found" for nic in self.nics for fibre in (nic.transmit, nic.receive)
        )
        heading = (
            f"{'SIMULATED ' if self.simulated else ''}lab {self.lab}: {found_count} of "
            f"{2 * len(self.nics)} fibres"
        )
        changes_text = format_count(self.circuit_changes, "change")
        yield f"{heading} found in {format_count(self.rounds, 'round')}, {changes_text} of circuits"
        yield from self.notes
        yield from (f"dead: {fibre}" for fibre in self.dead)
        yield from (f"uncertain: {fibre}" for fibre in self.uncertain)
        yield from (
            f"in use, not touched: {element}" for element in (*self.in_use.circuits, *self.in_use.nics)
        )
        yield from (f"{port} receives light from no NIC of this lab" for port in self.unnamed_light)
        note = "" if self.comments_kept else "; comments of the bare file could not be kept"
        yield f"written: {self.output}{note}"


@dataclass(frozen=True, kw_only=True)
class Discover(MovingCommand, Command[DiscoveryDocument]):
    """`testbed discover`."""

    needs = "bare lab"
    lab_help = "Lab file whose NICs need no `transmit` and `receive`."
    details = (
        "It patches only free ports, and restores all circuits. After a crash, the next discovery resumes."
    )
    output: Annotated[
        Path,
        output_file_option(
            "lab.yaml", "Lab file to write.", "--output", "-o", metavar="OUT", new_unless="force"
        ),
    ] = REQUIRED
    force: Annotated[bool, option("Replace OUT if it exists.", "--force", is_local=True, for_caller=True)] = (
        False
    )
    settle_s: Annotated[
        float | None,
        option(
            "Time that a NIC needs to detect its carrier.", "--settle", metavar="SECONDS", least=0, most=600
        ),
    ] = None

    def run(self, context: CommandContext) -> DiscoveryDocument:
        """Discover the fibres and write the file. Raises `LabFileError`, `RefusedToMove` and `HostError`."""
        from testbed.lab.inventory import load_bare_lab
        from testbed.lab.simulated.lifecycle import find_hosts_in_use, find_running_lab
        from testbed.lab.wired_file import check_new_file, write_new_file
        from testbed.operate.apply import check_permission
        from testbed.operate.discovery.lab_rows import write_lab_text

        assert context.lab_file is not None
        lab = find_running_lab(load_bare_lab(context.lab_file))
        check_new_file(self.output, replace=self.force)
        check_permission(lab, self.really_move)
        result = _discover(lab, context, self._choose_settle_s(lab))
        text, are_comments_kept = write_lab_text(context.lab_file, result, self.output)
        write_new_file(self.output, text, replace=self.force)
        document = DiscoveryDocument(
            lab=lab.name,
            simulated=lab.simulated,
            hosts=find_hosts_in_use(lab),
            nics=tuple(map(_make_nic, result.nic_results)),
            rounds=result.round_count,
            circuit_changes=result.circuit_changes,
            resumed=result.resumed,
            dead=result.list_fibres("dead"),
            uncertain=result.list_fibres("uncertain"),
            in_use=BusyElements(circuits=result.busy_circuits, nics=tuple(map("/".join, result.busy_nics))),
            unnamed_light=tuple(map(_format_port, result.unidentified_inputs)),
            notes=result.notes,
            output=self.output,
            comments_kept=are_comments_kept,
        )
        context.say(*document.format_lines())
        document = replace(document, unfinished=context.say_unfinished_operations(lab))
        context.say(f"next: testbed plan {self.output}{_make_topology_option(lab, context.runs_dir)}")
        return document

    def _choose_settle_s(self, lab: Lab) -> float:
        if self.settle_s is not None:
            return self.settle_s
        return SETTLE_SIMULATED_S if lab.simulated else SETTLE_REAL_S


def _discover(lab: Lab, context: CommandContext, settle_s: float) -> DiscoveryResult:
    from testbed.errors import HostError
    from testbed.lab.simulated.lifecycle import find_hosts_in_use
    from testbed.operate.discovery.devices import Devices
    from testbed.operate.discovery.run import DiscoveryRecord, discover
    from testbed.operate.journal import open_journal
    from testbed.operate.session import open_lab

    if find_hosts_in_use(lab) == "model":
        problem = f"the hosts of lab '{lab.name}' are only modelled and send no probe frames"
        raise HostError(
            f"{problem}; start it as root with `testbed sim up --hosts kernel`", host=lab.hosts[0].name
        )
    with open_journal(context.runs_dir) as journal, open_lab(lab, journal) as session, narrate() as narrator:
        assert session.fleet is not None  # modelled hosts were refused above
        devices = Devices(lab, session.switches, session.fleet, journal, settle_s=settle_s)
        return discover(devices, DiscoveryRecord(journal, lab.name), narrator.note)


def _make_nic(result: NicResult) -> Nic:
    return Nic(
        nic="/".join(result.nic), transmit=_make_fibre(result.transmit), receive=_make_fibre(result.receive)
    )


def _make_fibre(result: FibreResult) -> Fibre:
    port = _format_port(result.port) if result.port else None
    return Fibre(verdict=result.verdict, port=port, candidates=tuple(map(_format_port, result.candidates)))


def _format_port(port: tuple[str, int]) -> str:
    return f"{port[0]}:{port[1]}"


def _make_topology_option(lab: Lab, runs_dir: Path) -> str:
    """Return ` --method geometric` if an epoch is stored, or "".

    The default of `testbed plan` would then be the stored topology, which belongs to the old ports.
    """
    from testbed.operate.intent import load_intents

    return " --method geometric" if load_intents(runs_dir, lab.name) else ""
