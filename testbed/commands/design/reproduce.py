"""`testbed reproduce`: figures of a paper, computed with our models and compared with the published figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from testbed.commands.context import CommandContext
from testbed.commands.declare import REQUIRED, Command, argument, option
from testbed.commands.documents import OMIT_NONE, Document
from testbed.commands.groups import MovingCommand
from testbed.commands.progress import Narrator, narrate, note_compilation
from testbed.errors import WorkloadError

if TYPE_CHECKING:
    from testbed.design.evaluation.compilation import CodePart
    from testbed.design.reproductions.figure import Figure, Table

CODE_PARTS_BY_PAPER: Mapping[str, tuple[CodePart, ...]] = {
    "topoopt": ("flows", "search", "routes"),
    "rail-only": ("flows",),
    "sip-ml": (),
    "mixnet": ("regions",),
}


@dataclass(frozen=True, kw_only=True)
class ComparedQuantity:
    """A published quantity and our value, as text."""

    quantity: str
    published: str
    ours: str
    difference: str
    note: str

    def make_cells(self) -> tuple[str, ...]:
        """Return the row of a table for people."""
        return self.quantity, self.published, self.ours, self.difference, self.note


@dataclass(frozen=True, kw_only=True)
class ReproducedFigure:
    """A reproduced figure and its comparison with the published one."""

    figure: int
    title: str
    comparison: tuple[ComparedQuantity, ...]


@dataclass(frozen=True, kw_only=True)
class ReproductionDocument(Document):
    """Reproduced figures of a paper. If `quick` is true, sizes are small and the numbers cannot be compared.

    `rail-only` and `mixnet` have further sections, each with the numbers of one figure. `sip-ml` has `iterations`.
    """

    paper: str
    quick: bool
    figures: tuple[ReproducedFigure, ...]
    counts: tuple[Mapping[str, Any], ...] | None = field(default=None, metadata=OMIT_NONE)
    savings: tuple[Mapping[str, Any], ...] | None = field(default=None, metadata=OMIT_NONE)
    all_to_all: tuple[Mapping[str, Any], ...] | None = field(default=None, metadata=OMIT_NONE)
    iterations: tuple[Mapping[str, Any], ...] | None = field(default=None, metadata=OMIT_NONE)
    fits: tuple[Mapping[str, Any], ...] | None = field(default=None, metadata=OMIT_NONE)
    traffic: Mapping[str, Any] | None = field(default=None, metadata=OMIT_NONE)
    sweeps: tuple[Mapping[str, Any], ...] | None = field(default=None, metadata=OMIT_NONE)
    rectangles: Mapping[str, Any] | None = field(default=None, metadata=OMIT_NONE)
    table: tuple[Mapping[str, Any], ...] | None = field(default=None, metadata=OMIT_NONE)
    cost: tuple[Mapping[str, Any], ...] | None = field(default=None, metadata=OMIT_NONE)
    sensitivity: tuple[Mapping[str, Any], ...] | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True, kw_only=True)
class Reproduce(MovingCommand, Command[ReproductionDocument]):
    """`testbed reproduce`."""

    needs = "nothing"
    role = None
    paper: Annotated[
        Literal["topoopt", "unfairness", "sharing", "rail-only", "sip-ml", "mixnet"],
        argument("topoopt, unfairness, sharing, rail-only, sip-ml or mixnet", "PAPER"),
    ] = REQUIRED
    numbers: Annotated[
        tuple[int, ...],
        option(
            "Reproduce only this figure (repeatable); topoopt has figures 10 to 17.",
            "--figure",
            metavar="NUMBER",
        ),
    ] = ()
    quick: Annotated[bool, option("Use small sizes, to check that everything runs.", "--quick")] = False
    out: Annotated[
        Path, option("Folder for the reproduced figures and tables.", metavar="DIR", is_local=True)
    ] = Path("reproductions")
    plot: Annotated[Literal["svg", "png"], option("Format of plots.", "--picture")] = "svg"
    lab_file: Annotated[
        Path | None,
        option(
            "For sharing: also run the jobs on two hosts of this lab.", "--lab", metavar="LAB", is_local=True
        ),
    ] = None
    iterations: Annotated[int, option("Iterations of each job on the hosts.", metavar="N", least=1)] = 100

    def validate(self) -> None:
        """Raise `WorkloadError` if `--lab` is given for a paper whose jobs do not run on hosts."""
        super().validate()
        if self.lab_file is not None and self.paper != "sharing":
            raise WorkloadError(
                f"--lab is only for `testbed reproduce sharing`; {self.paper} runs no jobs on hosts"
            )

    def run(self, context: CommandContext) -> ReproductionDocument:
        """Compute the figures and write their files. Raises `WorkloadError`, and with `--lab` errors of measuring."""
        from testbed.design.reproductions.figure import HEADER

        package = import_module(self._package)
        figures = [_find_figure(package, number) for number in self.numbers or package.MODULES]
        note_compilation(*CODE_PARTS_BY_PAPER.get(self.paper, ("contention",)))
        (self.out / self.paper).mkdir(parents=True, exist_ok=True)
        reproduced_figures, tables = [], {}
        with narrate() as narrator, self._open_scale(context.runs_dir, narrator) as scale:
            for figure in figures:
                narrator.phase(f"figure {figure.number}: {figure.title}")
                table = tables[figure.number] = figure.make_table(scale, narrator.tick)
                reproduced_figures.append(self._write(figure, table, narrator))
        for reproduced_figure in reproduced_figures:
            rows = [quantity.make_cells() for quantity in reproduced_figure.comparison]
            context.say_table(f"figure {reproduced_figure.figure}: {reproduced_figure.title}", HEADER, rows)
        sections = package.describe(tables) if hasattr(package, "describe") else {}
        return ReproductionDocument(
            paper=self.paper, quick=self.quick, figures=tuple(reproduced_figures), **sections
        )

    @property
    def _package(self) -> str:
        return f"testbed.design.reproductions.{self.paper.replace('-', '_')}"

    @contextmanager
    def _open_scale(self, runs_dir: Path, narrator: Narrator) -> Iterator[Any]:
        """Yield the sizes of the reproduction. With `--lab` they include measurements on two hosts."""
        setup = import_module(f"{self._package}.setup")
        scale = setup.QUICK if self.quick else setup.PAPER
        if self.lab_file is None:
            yield scale
            return
        from testbed.measure.sharing.job_sets import open_two_hosts

        hosts = open_two_hosts(self.lab_file, self.iterations, self.really_move, runs_dir, narrator.note)
        with hosts as two_hosts:
            yield replace(scale, measure=two_hosts.measure)

    def _write(self, figure: Figure[Any], table: Table, narrator: Narrator) -> ReproducedFigure:
        """Write the CSV, plot and page of a figure, and return its record."""
        from lightbed.output_file import write_output
        from testbed.design.reproductions.drawing import draw_plot
        from testbed.design.reproductions.figure import HEADER, format_page, mark_small_sizes

        folder, name = self.out / self.paper, f"figure{figure.number}"
        write_output(folder / f"{name}.csv", table.csv)
        plot = draw_plot(figure.make_plot(table), folder / f"{name}.{self.plot}")
        comparisons = figure.compare_with_paper(table)
        if self.quick:
            comparisons = mark_small_sizes(comparisons)
        write_output(folder / f"{name}.md", format_page(figure, table, plot.name, is_quick=self.quick))
        narrator.note(f"{folder / name}.csv, .{self.plot}, .md")
        quantities = tuple(
            ComparedQuantity(**dict(zip(HEADER, line.cells, strict=True))) for line in comparisons
        )
        return ReproducedFigure(figure=figure.number, title=figure.title, comparison=quantities)


def _find_figure(package: Any, number: int) -> Figure[Any]:
    try:
        figure: Figure[Any] = package.load_figure(number)
    except ValueError as error:
        raise WorkloadError(str(error)) from error
    return figure
