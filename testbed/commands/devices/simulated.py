"""`testbed sim up|down|status` manage simulated labs that stay up between commands.

`sim switch` runs a single simulated switch. `sim examples` writes the package's example lab files.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from testbed.commands.context import CommandContext
from testbed.commands.declare import REQUIRED, Command, argument, option
from testbed.commands.documents import EXIT_DONE, OMIT_NONE, Document
from testbed.commands.groups import RATE_OPTION, HostsCommand
from testbed.errors import UsageError

if TYPE_CHECKING:
    from testbed.lab.simulated.fibre_draw import DrawnFibres
    from testbed.lab.simulated.lifecycle import SimulatedLab


@dataclass(frozen=True, kw_only=True)
class UpDocument(Document):
    """A simulated lab that is up, and the lab file with its addresses.

    `control` maps each twin to its control socket. `reason` says why hosts are modelled, or is empty. `crossed`, `dead`
    and `seed` describe fibres that were drawn with `--fibres`.
    """

    lab_id: str
    simulated: bool
    hosts: str
    reason: str
    subnet: str
    pid: int
    lab_file: str
    control: dict[str, str]
    rate_mbps: float
    shared_root: str
    crossed: int | None = field(default=None, metadata=OMIT_NONE)
    dead: int | None = field(default=None, metadata=OMIT_NONE)
    seed: int | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True, kw_only=True)
class SimUp(HostsCommand, Command[UpDocument]):
    """`testbed sim up`."""

    role = None
    details = (
        "A lab that runs at other addresses (another subnet, or without namespaces) gets its own lab file, "
        "whose path is printed."
    )
    move: Annotated[bool, option("Use the next free subnet if the lab's is taken.", "--move")] = False
    rate_mbps: Annotated[float | None, RATE_OPTION] = None
    fibres: Annotated[
        int | None, option("Draw with this seed which NIC is at which port, for `discover`.", metavar="SEED")
    ] = None
    crossed: Annotated[int, option("With --fibres: number of crossed pairs of fibres.", least=0)] = 0
    dead: Annotated[int, option("With --fibres: number of fibres without light.", least=0)] = 0

    def validate(self) -> None:
        """Raise `UsageError` for crossed or dead fibres without `--fibres`."""
        super().validate()
        if self.fibres is None and (self.crossed or self.dead):
            raise UsageError("--crossed and --dead change drawn fibres: pass --fibres SEED too")

    def run(self, context: CommandContext) -> UpDocument:
        """Start the lab, which stays up after the command. Raises `LabFileError` and `LabStartError`."""
        from testbed.lab.control import send_request
        from testbed.lab.simulated.fibre_draw import remove_fibres
        from testbed.lab.simulated.lifecycle import set_link_rate, start_lab

        assert context.lab_file is not None
        fibres = self._draw_fibres(context)
        lab = set_link_rate(fibres.lab, self.rate_mbps)
        simulated_lab = start_lab(lab, hosts=self.hosts, is_detached=True, may_move=self.move)
        for fibre in fibres.dead_fibre_names:
            send_request(simulated_lab.control_addresses["plant"], {"do": "cut", "fibre": fibre})
        if self.fibres is not None:
            simulated_lab.lab = remove_fibres(simulated_lab.lab)
        has_same_subnet = simulated_lab.lab.management == lab.management
        lab_file = context.lab_file if has_same_subnet else _write_lab_file(simulated_lab, context.runs_dir)
        next_command = f"apply {lab_file}" if self.fibres is None else f"discover {lab_file} -o WIRED.yaml"
        context.say(
            *_describe_start(simulated_lab),
            f"next: testbed {next_command}   stop it: testbed sim down {simulated_lab.lab_id}",
        )
        is_drawn = self.fibres is not None
        return UpDocument(
            lab_id=simulated_lab.lab_id,
            simulated=True,
            hosts=simulated_lab.hosts_mode,
            reason=simulated_lab.mode_reason,
            subnet=str(simulated_lab.lab.management),
            pid=simulated_lab.pid,
            lab_file=str(lab_file),
            control=dict(simulated_lab.control_addresses),
            rate_mbps=simulated_lab.lab.link.rate_mbps,
            shared_root=simulated_lab.shared_root,
            crossed=self.crossed if is_drawn else None,
            dead=self.dead if is_drawn else None,
            seed=self.fibres,
        )

    def _draw_fibres(self, context: CommandContext) -> DrawnFibres:
        """Return the lab with the fibres of its file, or with random fibres if `--fibres` is given."""
        from testbed.lab.inventory import load_bare_lab
        from testbed.lab.simulated.fibre_draw import DrawnFibres, draw_fibres

        if self.fibres is None or context.lab_file is None:
            return DrawnFibres(context.lab)
        return draw_fibres(
            load_bare_lab(context.lab_file), self.fibres, crossed_count=self.crossed, dead_count=self.dead
        )


def _describe_start(simulated_lab: SimulatedLab) -> Iterator[str]:
    reason = f" ({simulated_lab.mode_reason})" if simulated_lab.mode_reason else ""
    yield (
        f"SIMULATED lab {simulated_lab.lab.name} is up: {simulated_lab.lab_id}, hosts: "
        f"{simulated_lab.hosts_mode}{reason}"
    )
    rate = simulated_lab.link_rate
    yield f"  {rate.describe() if rate else f'links at {simulated_lab.lab.link.rate_mbps:g} Mbit/s'}"
    if simulated_lab.shared_root:
        yield f"  hosts share this machine's root and may write to it: {simulated_lab.shared_root}"
    yield from _describe_missing_interpreters(simulated_lab)
    yield from (
        f"  control of {name}: {address}" for name, address in simulated_lab.control_addresses.items()
    )


def _describe_missing_interpreters(simulated_lab: SimulatedLab) -> Iterator[str]:
    """Yield a line for each Python interpreter that the hosts need and this machine lacks."""
    remedy = "install it, or correct `ssh.python` of the lab file (relative to that file); no link is probed before"
    if simulated_lab.hosts_mode != "model":
        for python in sorted(
            {host.python for host in simulated_lab.lab.hosts if not shutil.which(host.python)}
        ):
            yield f"  the hosts' Python {python} does not exist: {remedy}"


def _write_lab_file(simulated_lab: SimulatedLab, runs_dir: Path) -> Path:
    from lightbed.output_file import replace_file
    from testbed.lab.inventory import render_lab

    path = runs_dir / "labs" / f"{simulated_lab.lab_id}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as file:
        file.write(render_lab(simulated_lab.lab).encode())
    return path


@dataclass(frozen=True, kw_only=True)
class DownDocument(Document):
    """The ids of labs that were removed, and of labs that stay up."""

    removed: tuple[str, ...]
    left: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SimDown(Command[DownDocument]):
    """`testbed sim down`."""

    needs = "nothing"
    role = None
    has_runs_dir = False
    labs: Annotated[
        tuple[str, ...], argument("Labs to stop: lab files, or ids.", "[LAB]...", complete="lab_ids")
    ] = ()
    all_labs: Annotated[bool, option("Stop all labs that you started, also running ones.", "--all")] = False

    def run(self, context: CommandContext) -> DownDocument:
        """Remove the labs. Raises `LabFileError` and `LabStartError`."""
        from testbed.lab.simulated.lifecycle import list_simulated_labs, remove_simulated_labs

        lab_ids = [_find_lab_id(lab) for lab in self.labs]
        removed_ids = tuple(sorted(remove_simulated_labs(lab_ids, all_labs=self.all_labs)))
        covers_all_labs = self.all_labs or not lab_ids
        entry_by_remaining_id = (
            {entry["lab_id"]: entry for entry in list_simulated_labs()} if covers_all_labs else {}
        )
        context.say(*[f"removed {lab_id}" for lab_id in removed_ids] or ["nothing to remove"])
        context.say(
            *(
                f"left {lab_id}: {self._explain_remaining_lab(entry)}"
                for lab_id, entry in entry_by_remaining_id.items()
            )
        )
        return DownDocument(removed=removed_ids, left=tuple(sorted(entry_by_remaining_id)))

    def _explain_remaining_lab(self, lab_entry: dict[str, Any]) -> str:
        """Return why a lab stays up."""
        if not self.all_labs:
            return "its supervisor is alive (--all stops the labs that you started)"
        return f"lab {lab_entry['lab']} was started by {lab_entry['user'] or 'somebody else'}; name it to stop it"


def _find_lab_id(lab: str) -> str:
    """Return the id of the running lab of a lab file. Return any other word unchanged, as an id."""
    if not (lab.endswith((".yaml", ".yml")) or Path(lab).is_file()):
        return lab
    from testbed.lab.inventory import load_lab
    from testbed.lab.simulated.lifecycle import find_running_lab_id

    return find_running_lab_id(load_lab(Path(lab)))


@dataclass(frozen=True, kw_only=True)
class LocalLab:
    """A simulated lab of this machine. Only its id is known if it is not live."""

    lab_id: str
    lab: str
    live: bool
    hosts: str
    pid: int
    subnet: str
    rate_mbps: float
    user: str


@dataclass(frozen=True, kw_only=True)
class StatusDocument(Document):
    """The simulated labs of this machine, live or left over."""

    labs: tuple[LocalLab, ...]


@dataclass(frozen=True, kw_only=True)
class SimStatus(Command[StatusDocument]):
    """`testbed sim status`."""

    needs = "nothing"
    role = None
    has_runs_dir = False

    def run(self, context: CommandContext) -> StatusDocument:
        """List the labs."""
        from testbed.lab.simulated.lifecycle import list_simulated_labs

        labs = tuple(LocalLab(**entry) for entry in list_simulated_labs())
        if labs:
            rows = [sorted(asdict(lab).items()) for lab in labs]
            columns = [name for name, _ in rows[0]]
            context.say_table("Simulated labs", columns, [[value for _, value in row] for row in rows])
        else:
            context.say("no simulated labs")
        return StatusDocument(labs=labs)


@dataclass(frozen=True, kw_only=True)
class ExamplesDocument(Document):
    """Lab files that were written, and existing ones that were kept."""

    written: tuple[str, ...]
    kept: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SimExamples(Command[ExamplesDocument]):
    """`testbed sim examples`."""

    needs = "nothing"
    role = None
    has_runs_dir = False
    folder: Annotated[Path, argument("Folder for the lab files.", "[FOLDER]", is_local=True)] = Path("labs")

    def run(self, context: CommandContext) -> ExamplesDocument:
        """Write the files. Raises `OSError`."""
        from importlib.resources import files

        from lightbed.output_file import write_output

        written_files, existing_files = [], []
        self.folder.mkdir(parents=True, exist_ok=True)
        examples = (files("testbed.lab") / "examples").iterdir()
        for example in sorted(examples, key=lambda example_file: example_file.name):
            path = self.folder / example.name
            if path.exists():
                existing_files.append(str(path))
            else:
                write_output(path, example.read_bytes())
                written_files.append(str(path))
        context.say(
            *(f"written: {path}" for path in written_files),
            *(f"already there: {path}" for path in existing_files),
        )
        return ExamplesDocument(written=tuple(written_files), kept=tuple(existing_files))


@dataclass(frozen=True, kw_only=True)
class TwinExit(Document):
    """The exit status of the process of a simulated switch."""

    status: int

    @property
    def exit_code(self) -> int:
        """The exit status of the process."""
        return self.status


@dataclass(frozen=True, kw_only=True)
class SimSwitch(Command[TwinExit]):
    """`testbed sim switch`."""

    needs = "nothing"
    role = None
    has_runs_dir = False
    has_json = False
    details = (
        "Further options, such as --size 48x48, --speed 100 or --fault fail_port=3, are those of\n"
        "`testbed sim switch FAMILY -- --help`."
    )
    family: Annotated[
        str, argument("Family, e.g. polatis; `list` prints all families.", "FAMILY", complete="families")
    ] = REQUIRED
    words: Annotated[
        tuple[str, ...], argument("Options of the simulated switch.", "...", takes_rest=True)
    ] = ()

    def run(self, context: CommandContext) -> TwinExit:
        """Serve the switch until it is interrupted."""
        from lightbed.children import make_child_environment, make_module_command

        words = ["--list"] if self.family == "list" else [self.family, *self.words]
        command = make_module_command("sim.twins", "--called-as", "testbed sim switch", *words)
        with subprocess.Popen(command, stdin=subprocess.PIPE, env=make_child_environment()) as twin:
            try:
                return TwinExit(status=twin.wait())
            except KeyboardInterrupt:
                # Ctrl-C at a terminal reaches both processes. If only we got it, the end of its input ends the twin.
                assert twin.stdin is not None
                twin.stdin.close()
                twin.wait()
                return TwinExit(status=EXIT_DONE)
