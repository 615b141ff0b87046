"""`testbed metrics`: the figures that Prometheus collects, printed once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.completion import lab_files
from testbed.cli.options import DEFAULT_RUNS, AsJson, RunsDirectory
from testbed.cli.output import print_json
from testbed.commands.documents import DONE


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("metrics")(metrics)


def metrics(
    labs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[LAB]...", help="Lab files whose switches are read, too.", autocompletion=lab_files
        ),
    ] = None,
    runs_dir: RunsDirectory = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> int:
    """Print metrics of the database, and of the switches of labs that are named, as Prometheus reads them."""
    from testbed.lab.inventory import load_lab
    from testbed.lab.simulated.lifecycle import find_running
    from testbed.observe.device_metrics import device_samples
    from testbed.observe.exposition import exposition
    from testbed.observe.stored_metrics import stored_samples

    named = [find_running(load_lab(path)) for path in labs or ()]
    samples = [*stored_samples(runs_dir), *(sample for lab in named for sample in device_samples(lab))]
    if as_json:
        print_json({"samples": [sample.json() for sample in samples]})
    else:
        print(exposition(samples), end="")
    return DONE
