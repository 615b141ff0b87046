"""Commands through a service: `--server URL` or LIGHTBED_SERVER, with the token in LIGHTBED_TOKEN.

A command becomes a run of the service. Its output is printed here, its files are written here, and its exit code is
returned.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lightbed.output_file import write_output
from testbed.cli.output import print_answer
from testbed.commands.declare import Command, Field, fields_of
from testbed.commands.documents import CHANGES, DONE, ERROR
from testbed.commands.place import Place

if TYPE_CHECKING:
    from testbed.client import Client
    from testbed.commands.share.stop import Stop

_server: ContextVar[str] = ContextVar("server", default="")


def choose_server(url: str) -> None:
    """Choose the service that runs commands; with an empty URL they run in this process."""
    _server.set(url)


def is_for_service(command: Command[Any], place: Place) -> bool:
    """Return whether a service is chosen and can run the command."""
    is_local = command.needs == "lab unless local" and place.lab_file is None
    return bool(_server.get()) and command.role is not None and not is_local


@dataclass(frozen=True, slots=True)
class _Submission:
    """A request: command, lab and fields, and the local path of each file of the run."""

    words: str
    lab: str
    fields: Mapping[str, Any]
    files: Mapping[str, Path]


def run_on_service(words: str, command: Command[Any], place: Place) -> int:
    """Submit a command to the service, wait, print its output, and return its exit code.

    Raises `NotThroughService` for an option that works only locally, and the errors of the client.
    """
    from testbed.client import connect

    with connect(_server.get()) as client:
        if command.has_own_route:
            return _stop(client, cast("Stop", command), place)
        return _wait(client, _submission(client, words, command, place))


def _wait(client: Client, submission: _Submission) -> int:
    run = client.wait(client.submit(submission.lab, submission.words, **submission.fields))
    output = run.output
    for name, path in submission.files.items():
        output = output.replace(f"{run.id}/{name}", str(path))
        if run.exit_code in (DONE, CHANGES):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_output(path, client.read_file(run.id, name))
    sys.stderr.write(run.messages)
    sys.stdout.write(output)
    sys.stdout.flush()
    if run.state == "cancelled":
        print(f"error: run {run.id} was cancelled", file=sys.stderr)
    return ERROR if run.exit_code is None else run.exit_code


def _submission(client: Client, words: str, command: Command[Any], place: Place) -> _Submission:
    from testbed.lab.wired_file import check_new_file
    from testbed.leases.choice import get_selected_lease

    files = command.files_to_write() or command.default_files()
    flags = {
        each.option.writes: each.option.new_unless for each in fields_of(type(command)) if each.option.writes
    }
    for name, path in files.items():  # refuses existing files before anything is sent
        flag = flags.get(name)
        check_new_file(path, replace=getattr(command, flag) if flag else True)
    variant = next((name for name in command.variants if getattr(command, name)), "")
    changed = [each for each in fields_of(type(command)) if getattr(command, each.name) != each.default]
    fields = {each.name: _value(command, each) for each in _fields_to_send(words, command, changed, variant)}
    fields |= {each.name: True for each in fields_of(type(command)) if each.option.writes and files}
    fields["text"] = not place.is_quiet
    may_move = {each.name for each in fields_of(type(command)) if each.option.only_with in ("", variant)}
    if {"really_move", "yes"} & may_move and get_selected_lease():
        fields["lease"] = get_selected_lease()
    lab = fields.pop("lab", "") or lab_name(place.lab_file or Path())
    if command.needs == "labs if any":
        fields["labs"] = [lab_name(path) for path in place.lab_files]
    if command.needs == "switch":
        lab, fields["switch"] = _find_switch(client, fields.pop("address"))
    return _Submission(f"{words} --{variant}" if variant else words, lab, fields, files)


def _fields_to_send(words: str, command: Command[Any], changed: list[Field], variant: str) -> Iterator[Field]:
    """Yield the options that the request contains. Raises `NotThroughService` for an option that works only locally."""
    from testbed.client import NotThroughService

    for each in changed:
        if each.name in command.variants or each.option.for_caller or each.option.writes:
            continue
        is_address = command.needs == "switch" and each.name == "address"
        if not is_address and (each.option.is_local or each.option.only_with not in ("", variant)):
            raise NotThroughService(
                f"{words} {each.words[0]} works only locally: leave it out, or leave out --server "
                "(LIGHTBED_SERVER)"
            )
        yield each


def _value(command: Command[Any], each: Field) -> Any:
    """Return the value of a field for a request: the text of a file, a value as text, or the value itself."""
    value = getattr(command, each.name)
    if each.option.reads:
        return Path(value).read_text(encoding="utf-8")
    if each.option.text is not None:
        return each.option.text.write(value)
    return list(value) if each.has_several else value


def lab_name(lab_file: Path) -> str:
    """Return the name in a lab file; if the file does not exist, its path as the name; empty for an empty path."""
    if lab_file == Path():
        return ""
    if not lab_file.exists():
        return str(lab_file)
    from testbed.lab.inventory import load_bare_lab

    return load_bare_lab(lab_file).name


def _find_switch(client: Client, text: str) -> tuple[str, str]:
    """Return the lab and the name of a switch from its address, `NAME` or `LAB/NAME`. Raises `NotThroughService`."""
    from testbed.client import NotThroughService

    switches = [
        (lab["name"], one["name"], one["address"])
        for lab in client.list_labs()
        for one in client.lab(lab["name"]).read("switches")["switches"]
    ]
    matches = [(lab, name) for lab, name, address in switches if text in (address, name, f"{lab}/{name}")]
    if len(matches) == 1:
        return matches[0]
    choices = ", ".join(f"{lab}/{name}" for lab, name in matches or [one[:2] for one in switches])
    why = "is a switch of several labs" if matches else "is not a switch of the service's labs"
    raise NotThroughService(f"{text!r} {why}; name one of {choices}, or leave out --server (LIGHTBED_SERVER)")


def _stop(client: Client, command: Stop, place: Place) -> int:
    """Stop a lab or release its stop, through the service's own route, which is faster than a run."""
    from testbed.commands.share.stop import StopDocument

    lab = client.lab(lab_name(place.lab_file or Path()))
    answer = dict(lab.release_stop() if command.release else lab.stop(command.reason))
    document = StopDocument(**answer)
    print_answer(answer, document.lines(place.lab_file), as_json=place.is_quiet)
    return document.exit_code
