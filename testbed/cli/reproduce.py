"""`testbed reproduce`: the figures of a paper made again, beside what was published."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lightbed.output_file import write_output
from testbed.cli.options import DEFAULT_RUNS, AsJson, RunsDirectory, grouped
from testbed.cli.output import print_json, print_table
from testbed.cli.sharing_on_hosts import NO_HOSTS, SharingOnHosts
from testbed.commands.documents import DONE
from testbed.commands.progress import PlainNarrator, RichNarrator, narrate, note_compilation
from testbed.errors import WorkloadError

if TYPE_CHECKING:
    from testbed.design.evaluation.compilation import Part
    from testbed.design.reproductions.figure import Figure
    from testbed.design.reproductions.table import Table

_PARTS: Mapping[str, tuple[Part, ...]] = {"topoopt": ("flows", "search", "routes")}
Narrator = PlainNarrator | RichNarrator


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("reproduce")(reproduce)


@grouped("hosts", SharingOnHosts.of)
def reproduce(
    paper: Annotated[
        Literal["topoopt", "unfairness", "sharing"],
        typer.Argument(metavar="PAPER", help="topoopt, unfairness or sharing"),
    ],
    numbers: Annotated[
        list[int] | None,
        typer.Option("--figure", metavar="NUMBER", help="One figure (repeatable): 10 to 17 of topoopt."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: shows that all runs.")] = False,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the files go.")] = Path(
        "reproductions"
    ),
    plot: Annotated[Literal["svg", "png"], typer.Option("--picture", help="Format of plots.")] = "svg",
    hosts: SharingOnHosts = NO_HOSTS,
    runs_dir: RunsDirectory = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> int:
    """Make figures of a paper again: CSV, plot, and a table of published and own numbers."""
    from testbed.design.reproductions.comparison import HEADER

    package, setup = (import_module(f"testbed.design.reproductions.{paper}{part}") for part in ("", ".setup"))
    figures = [_figure(package, number) for number in numbers or package.MODULES]
    note_compilation(*_PARTS.get(paper, ("contention",)))
    folder = out / paper
    folder.mkdir(parents=True, exist_ok=True)
    documents = []
    with narrate() as narrator, hosts.scale(setup, paper, runs_dir, narrator.note, quick=quick) as scale:
        for wanted in figures:
            narrator.phase(f"figure {wanted.number}: {wanted.title}")
            table = wanted.make(scale, narrator.tick)
            documents.append(_write(wanted, table, folder, plot, narrator, quick=quick))
    if as_json:
        print_json({"paper": paper, "quick": quick, "figures": documents})
        return DONE
    for wanted, document in zip(figures, documents, strict=True):
        rows = [list(line.values()) for line in document["comparison"]]
        print_table(f"figure {wanted.number}: {wanted.title}", HEADER, rows)
    return DONE


def _figure(package: Any, number: int) -> Figure[Any]:
    try:
        found: Figure[Any] = package.figure(number)
        return found
    except ValueError as error:
        raise WorkloadError(str(error)) from error


def _write(
    wanted: Figure[Any], table: Table, folder: Path, ending: str, narrator: Narrator, *, quick: bool
) -> dict[str, Any]:
    """Return the files of a figure, and the document of it."""
    from testbed.design.reproductions.comparison import HEADER, of_small_sizes
    from testbed.design.reproductions.drawing import draw
    from testbed.design.reproductions.page import page

    name = f"figure{wanted.number}"
    write_output(folder / f"{name}.csv", table.csv)
    plot = draw(wanted.draw(table), folder / f"{name}.{ending}")
    comparisons = wanted.compare(table)
    if quick:
        comparisons = of_small_sizes(comparisons)
    write_output(folder / f"{name}.md", page(wanted, table, plot.name, quick=quick))
    narrator.note(f"{folder / name}.csv, .{ending}, .md")
    return {
        "figure": wanted.number,
        "title": wanted.title,
        "comparison": [dict(zip(HEADER, line.cells, strict=True)) for line in comparisons],
    }
