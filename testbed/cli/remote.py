"""Commands through a service: `--server URL` or LIGHTBED_SERVER, with the token in LIGHTBED_TOKEN.

A command becomes a run of the service. Its output is printed here, its files are written here, and its exit code is
returned.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from testbed.cli.output import print_answer
from testbed.commands.context import CommandContext
from testbed.commands.declare import Command
from testbed.commands.documents import EXIT_ERROR
from testbed.scripting.submission import Submission, make_submission

if TYPE_CHECKING:
    from testbed.client import Client
    from testbed.commands.share.stop import Stop

_server: ContextVar[str] = ContextVar("server", default="")


def choose_server(url: str) -> None:
    """Choose the service that runs commands. With an empty URL, commands run in this process."""
    _server.set(url)


def is_for_service(command: Command[Any], context: CommandContext) -> bool:
    """Return whether a service is chosen and can run the command."""
    is_local = command.needs == "lab unless local" and context.lab_file is None
    return bool(_server.get()) and command.role is not None and not is_local


def run_on_service(command_name: str, command: Command[Any], context: CommandContext) -> int:
    """Submit a command to the service, wait, print its output, and return its exit code.

    Raises `NotThroughService` for an option that works only locally, and the errors of the client.
    """
    from testbed.client import connect

    with connect(_server.get()) as client:
        if command.has_service_route:
            return _run_stop(client, cast("Stop", command), context)
        return _run_submission(
            client,
            make_submission(
                client,
                command_name,
                command,
                read_lab_name(context.lab_file or Path()),
                labs=[read_lab_name(path) for path in context.lab_files],
                wants_text=not context.is_quiet,
            ),
        )


def _run_submission(client: Client, submission: Submission) -> int:
    run = client.wait(client.submit(submission.lab_name, submission.command_words, **submission.fields))
    submission.save_files(client, run)
    output = run.output
    for name, path in submission.path_by_file.items():
        output = output.replace(f"{run.id}/{name}", str(path))
    sys.stderr.write(run.messages)
    sys.stdout.write(output)
    sys.stdout.flush()
    if run.state == "cancelled":
        print(f"error: run {run.id} was cancelled", file=sys.stderr)
    return EXIT_ERROR if run.exit_code is None else run.exit_code


def read_lab_name(lab_file: Path) -> str:
    """Return the name in a lab file, the path as the name if the file does not exist, or "" for an empty path."""
    if lab_file == Path():
        return ""
    if not lab_file.exists():
        return str(lab_file)
    from testbed.lab.inventory import load_bare_lab

    return load_bare_lab(lab_file).name


def _run_stop(client: Client, command: Stop, context: CommandContext) -> int:
    """Stop a lab or release its stop. The service has a route for this, because a run would be slower."""
    from testbed.commands.share.stop import StopDocument

    lab = client.lab(read_lab_name(context.lab_file or Path()))
    answer = dict(lab.release_stop() if command.release else lab.stop(command.reason))
    document = StopDocument(**answer)
    print_answer(answer, document.format_lines(context.lab_file), as_json=context.is_quiet)
    return document.exit_code
