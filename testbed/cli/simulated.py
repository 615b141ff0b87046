"""`testbed sim up|down|status`: a simulated lab that stays up between commands; `sim switch`: one switch alone.

`sim examples` writes the lab files that the package brings along.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbed.children import child_environment, module_command
from lightbed.output_file import replace_file, write_output
from testbed.cli import completion
from testbed.cli.options import DEFAULT_RUNS, AsJson, HostsMode, LabFile, RateMbps, RunsDirectory
from testbed.cli.output import print_json, print_lines, print_table
from testbed.commands.documents import DONE

if TYPE_CHECKING:
    from testbed.lab.simulated.fibre_draw import DrawnFibres
    from testbed.lab.simulated.lifecycle import SimulatedLab

Fibres = Annotated[
    int | None,
    typer.Option("--fibres", metavar="SEED", help="Draw which NIC stands at which port, for `discover`."),
]
Crossed = Annotated[int, typer.Option("--crossed", min=0, help="With --fibres: crossed pairs of fibres.")]
Dead = Annotated[int, typer.Option("--dead", min=0, help="With --fibres: fibres without light.")]

app = typer.Typer(help="Simulated labs: start, stop, list.")


def register(root: typer.Typer) -> None:
    """Add the group."""
    root.add_typer(app, name="sim")


@app.command()
def up(
    lab_file: LabFile,
    hosts: HostsMode = "auto",
    move: Annotated[
        bool, typer.Option("--move", help="Take the next free subnet if the lab's is taken.")
    ] = False,
    rate_mbps: RateMbps = None,
    fibres: Fibres = None,
    crossed: Crossed = 0,
    dead: Dead = 0,
    runs_dir: RunsDirectory = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> int:
    """Start the simulated lab of a lab file, at the lab file's own addresses; returns when it is ready.

    A lab that had to move (another subnet, or no namespaces) gets a lab file of its own, whose path is printed.
    """
    from testbed.lab.simulated.fibre_draw import without_fibres
    from testbed.lab.simulated.lifecycle import at_rate, start_lab

    drawn = _lab_to_start(lab_file, fibres, crossed, dead)
    asked = at_rate(drawn.lab, rate_mbps)
    started = start_lab(asked, hosts=hosts, detached=True, move=move)
    _kill_fibres(started, drawn.dead)
    if fibres is not None:
        started.lab = without_fibres(started.lab)
    stands_at = lab_file if started.lab.management == asked.management else _leave_lab_file(started, runs_dir)
    if as_json:
        print_json(
            {"lab_id": started.lab_id, "simulated": True, "hosts": started.hosts, "reason": started.reason}
            | {"subnet": str(started.lab.management), "pid": started.pid, "lab_file": str(stands_at)}
            | {"control": dict(started.control), "rate_mbps": started.lab.link.rate_mbps}
            | {"shared_root": started.shared_root}
            | ({} if fibres is None else {"crossed": crossed, "dead": dead, "seed": fibres})
        )
        return DONE
    print_lines(_started_lines(started, _next_command(stands_at, fibres)))
    return DONE


def _started_lines(started: SimulatedLab, next_command: str) -> list[str]:
    reason = f" ({started.reason})" if started.reason else ""
    lines = [
        f"SIMULATED lab {started.lab.name} is up: {started.lab_id}, hosts: {started.hosts}{reason}",
        f"  {started.link_rate.describe() if started.link_rate else _fixed_rate(started)}",
    ]
    if started.shared_root:
        lines.append(f"  hosts share this machine's root and may write to it: {started.shared_root}")
    lines += _missing_interpreters(started)
    lines += [f"  control of {name}: {address}" for name, address in started.control.items()]
    return [*lines, f"next: {next_command}   end it: testbed sim down {started.lab_id}"]


def _missing_interpreters(started: SimulatedLab) -> list[str]:
    """Return a line for each interpreter that hosts of namespaces, which run this machine's programs, do not find."""
    if started.hosts == "model":
        return []
    absent = sorted({host.python for host in started.lab.hosts if not shutil.which(host.python)})
    remedy = (
        "`ssh.python` of the lab file names it, relative to that file; until it is there no link is probed"
    )
    return [f"  the hosts' Python {python} is not there: {remedy}" for python in absent]


def _lab_to_start(lab_file: Path, seed: int | None, crossed: int, dead: int) -> DrawnFibres:
    """Return the lab of a file with the fibres that it gives, or with those that the seed draws."""
    from testbed.errors import LabStartError
    from testbed.lab.inventory import load_bare_lab, load_lab
    from testbed.lab.simulated.fibre_draw import DrawnFibres, draw_fibres

    if seed is not None:
        return draw_fibres(load_bare_lab(lab_file), seed, crossed=crossed, dead=dead)
    if crossed or dead:
        raise LabStartError("--crossed and --dead change drawn fibres: give --fibres SEED too")
    return DrawnFibres(load_lab(lab_file))


def _kill_fibres(started: SimulatedLab, fibres: tuple[str, ...]) -> None:
    from testbed.lab.control import control

    for fibre in fibres:
        control(started.control["plant"], {"do": "cut", "fibre": fibre})


def _next_command(lab_file: Path, seed: int | None) -> str:
    return f"testbed apply {lab_file}" if seed is None else f"testbed discover {lab_file} -o WIRED.yaml"


def _fixed_rate(started: SimulatedLab) -> str:
    return f"links at {started.lab.link.rate_mbps:g} Mbit/s"


def _leave_lab_file(started: SimulatedLab, runs_dir: Path) -> Path:
    from testbed.lab.inventory import render_lab

    path = runs_dir / "labs" / f"{started.lab_id}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as file:
        file.write(render_lab(started.lab).encode())
    return path


@app.command()
def down(
    labs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[LAB]...", help="Labs to end: lab files, or ids.", autocompletion=completion.lab_ids
        ),
    ] = None,
    all_labs: Annotated[bool, typer.Option("--all", help="Also living labs that you started.")] = False,
    as_json: AsJson = False,
) -> int:
    """Remove labs whose supervisor is gone; a living one when named, those that you started with --all."""
    from testbed.lab.simulated.lifecycle import lab_down, lab_status

    lab_ids = [_lab_id(word) for word in labs or ()]
    removed = sorted(lab_down(lab_ids, all_labs=all_labs))
    is_about_all = all_labs or not lab_ids
    left = {entry["lab_id"]: entry for entry in lab_status()} if is_about_all else {}
    if as_json:
        print_json({"removed": removed, "left": sorted(left)})
    else:
        print_lines([f"removed {lab_id}" for lab_id in removed] or ["nothing to remove"])
        print_lines(
            [f"left {lab_id}: {_why_left(entry, all_labs=all_labs)}" for lab_id, entry in left.items()]
        )
    return DONE


def _why_left(entry: dict[str, Any], *, all_labs: bool) -> str:
    if not all_labs:
        return "its supervisor is alive (--all ends those that you started)"
    return f"lab {entry['lab']} was started by {entry['user'] or 'somebody else'}; name it to end it"


def _lab_id(word: str) -> str:
    """Return the id that a word is, or that of the lab of the lab file that it names."""
    if not (word.endswith((".yaml", ".yml")) or Path(word).is_file()):
        return word
    from testbed.lab.inventory import load_lab
    from testbed.lab.simulated.lifecycle import id_of_running

    return id_of_running(load_lab(Path(word)))


@app.command()
def status(as_json: AsJson = False) -> int:
    """List the simulated labs of this machine, living or left over."""
    from testbed.lab.simulated.lifecycle import lab_status

    labs = lab_status()
    if as_json:
        print_json({"labs": labs})
    elif not labs:
        print_lines(["no simulated labs"])
    else:
        columns = sorted({key for entry in labs for key in entry})
        print_table("Simulated labs", columns, [[entry.get(key, "") for key in columns] for entry in labs])
    return DONE


@app.command()
def examples(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where they go.")] = Path("labs"),
    as_json: AsJson = False,
) -> int:
    """Write the lab files of the examples into a folder. A file that is there already stays as it is."""
    from importlib.resources import files

    new, old = [], []
    folder.mkdir(parents=True, exist_ok=True)
    shipped = (files("testbed.lab") / "examples").iterdir()
    for example in sorted(shipped, key=lambda each: each.name):
        path = folder / example.name
        if path.exists():
            old.append(str(path))
        else:
            write_output(path, example.read_bytes())
            new.append(str(path))
    if as_json:
        print_json({"written": new, "kept": old})
    else:
        print_lines([f"written: {path}" for path in new] + [f"already there: {path}" for path in old])
    return DONE


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def switch(
    context: typer.Context,
    family: Annotated[
        str,
        typer.Argument(
            metavar="FAMILY",
            help="Such as polatis; `list` names them all.",
            autocompletion=completion.families,
        ),
    ],
) -> int:
    """Serve one simulated switch until interrupted; prints one JSON line with its addresses.

    Further options, such as --size 48x48, --speed 100 or --fault fail_port=3, are those of
    `testbed sim switch FAMILY -- --help`.
    """
    words = ["--list"] if family == "list" else [family, *context.args]
    command = module_command("sim.twins", "--called-as", "testbed sim switch", *words)
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=child_environment()) as twin:
        try:
            return twin.wait()
        except KeyboardInterrupt:
            # The terminal interrupts both; a twin that was not told ends with its input.
            assert twin.stdin is not None
            twin.stdin.close()
            twin.wait()
            return DONE
