"""`lightning reproduce smartnic`: figures of Lightning (SIGCOMM 2023), published and computed again."""

from __future__ import annotations

import sys
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightning.cli.options import AsJson
from lightning.cli.output import EXIT_OK, print_document, write_csv

if TYPE_CHECKING:
    from lightning.reproductions.smartnic import Row


class Paper(Enum):
    """A paper whose figures can be reproduced."""

    SMARTNIC = "smartnic"


Name = Annotated[Paper, typer.Argument(metavar="PAPER", help="smartnic: Lightning, SIGCOMM 2023.")]
Quick = Annotated[bool, typer.Option("--quick", help="Small sizes, to check that everything runs.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the table and the picture.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("reproduce")(reproduce)


def reproduce(
    paper: Name, out: Out = Path("reproductions"), *, quick: Quick = False, as_json: AsJson = False
) -> int:
    """Compute the figures of a paper again, and write them beside the published numbers.

    For example: lightning reproduce smartnic --json
    """
    from lightning.canvas import save
    from lightning.reproductions.serve_time_plot import plot_serve_times
    from lightning.reproductions.smartnic import FULL_SCALE, QUICK_SCALE, TITLE_BY_FIGURE
    from lightning.reproductions.smartnic import reproduce as compute

    rows = compute(QUICK_SCALE if quick else FULL_SCALE, lambda part: print(part, file=sys.stderr))
    folder = out / paper.value
    folder.mkdir(parents=True, exist_ok=True)
    entries = [_make_entry(row) for row in rows]
    write_csv(folder / "figures.csv", list(entries[0]), [list(entry.values()) for entry in entries])
    save(plot_serve_times(rows), folder / "serve_times.png")
    if as_json:
        print_document(None, {"paper": paper.value, "quick": quick, "rows": entries})
        return EXIT_OK
    for figure, title in TITLE_BY_FIGURE.items():
        print(f"figure {figure}: {title}")
        for row in rows:
            if row.figure == figure:
                print("\n".join(_format_row(row)))
    print(f"written: {folder}")
    return EXIT_OK


def _make_entry(row: Row) -> dict[str, Any]:
    """Return a row as the entry of a document."""
    entry = asdict(row)
    note = entry.pop("note")
    return {**entry, "difference": row.difference_percent, "note": note}


def _format_row(row: Row) -> list[str]:
    published = (
        "" if row.published is None else f"  published {row.published:g}, {row.difference_percent:+.1f} %"
    )
    return [f"  {row.quantity}: {row.ours:.6g}{published}", *([f"    {row.note}"] if row.note else [])]
