"""`testbed stop`: the emergency stop of a lab. No lease, no role and no lock of a database can hold it up."""

from __future__ import annotations

from typing import Annotated

import typer

from testbed.cli import options
from testbed.cli.output import print_answer
from testbed.cli.unfinished import with_unfinished
from testbed.commands.documents import CHANGES, DONE


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("stop")(stop)


def stop(
    lab_file: options.LabFile,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Told to whoever wants to move it.")
    ] = "",
    release: Annotated[bool, typer.Option("--release", help="Let the lab move again.")] = False,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Stop a lab: nothing more is sent to any device, whoever asks. Exit code 2 while a step is under way."""
    from testbed.errors import JournalError
    from testbed.lab.inventory import load_lab
    from testbed.operate.engine.consent import EmergencyStop
    from testbed.operate.recovery.records import operations_of

    lab = load_lab(lab_file)
    latch = EmergencyStop(runs_dir, lab.name)
    if release:
        was = latch.release()
        said = "may move again: `testbed resume` goes on with what was stopped" if was else "was not stopped"
        released = {"lab": lab.name, "stopped": False, "was_stopped": was}
        lines = [f"lab '{lab.name}' {said}"]
        print_answer(*with_unfinished(released, lines, runs_dir, lab), as_json=as_json)
        return DONE
    latch.pull(reason)
    try:
        running = [one.id for one in operations_of(runs_dir, lab.name) if one.state == "running"]
        lines = [
            f"operation {one} ends at its next write; a move that a device has begun goes on"
            for one in running
        ]
    except JournalError as error:
        running, lines = [], [f"what is under way is not known: {error}"]
    document = {"lab": lab.name, "stopped": True, "reason": reason, "running": running}
    lines = [f"lab '{lab.name}' is stopped; `testbed stop {lab.path} --release` lets it move again", *lines]
    print_answer(*with_unfinished(document, lines, runs_dir, lab), as_json=as_json)
    return CHANGES if running else DONE
