"""Requests to a service, made from commands, for `--server` and for labs of a service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbed.output_file import write_output
from testbed.commands.declare import Command, Field, list_fields
from testbed.commands.documents import EXIT_CHANGES, EXIT_DONE

if TYPE_CHECKING:
    from testbed.client import Client, Run


@dataclass(frozen=True, slots=True)
class Submission:
    """A request: command, lab and fields, and the local path of each file of the run."""

    command_words: str
    lab_name: str
    fields: Mapping[str, Any]
    path_by_file: Mapping[str, Path]

    def save_files(self, client: Client, run: Run) -> None:
        """Write the files of a successful run to their local paths."""
        for name, path in self.path_by_file.items():
            if run.exit_code in (EXIT_DONE, EXIT_CHANGES):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_output(path, client.read_file(run.id, name))


def make_submission(
    client: Client,
    words: str,
    command: Command[Any],
    lab: str,
    *,
    labs: Sequence[str] = (),
    wants_text: bool = False,
) -> Submission:
    """Return the request for a command on a lab, or on `labs` if the command takes several.

    With `wants_text` the run prints lines for people instead of JSON. Raises `NotThroughService` for an option that
    works only locally, and an error for a file that already exists.
    """
    from testbed.lab.wired_file import check_new_file
    from testbed.leases.choice import get_selected_lease

    files = command.list_files_to_write() or command.list_default_files()
    flag_by_file = {
        field.option.writes: field.option.new_unless
        for field in list_fields(type(command))
        if field.option.writes
    }
    for name, path in files.items():  # refuses existing files before anything is sent
        flag = flag_by_file.get(name)
        check_new_file(path, replace=getattr(command, flag) if flag else True)
    variant = next((name for name in command.variants if getattr(command, name)), "")
    changed_fields = [
        field for field in list_fields(type(command)) if getattr(command, field.name) != field.default
    ]
    fields = {
        field.name: _get_value(command, field)
        for field in _select_fields(words, command, changed_fields, variant)
    }
    fields |= {field.name: True for field in list_fields(type(command)) if field.option.writes and files}
    fields["text"] = wants_text
    may_move = {field.name for field in list_fields(type(command)) if field.option.only_with in ("", variant)}
    if {"really_move", "yes"} & may_move and get_selected_lease():
        fields["lease"] = get_selected_lease()
    lab = fields.pop("lab", "") or lab
    if command.needs == "labs if any":
        fields["labs"] = list(labs)
    if command.needs == "switch":
        lab, fields["switch"] = _find_switch(client, fields.pop("address"))
    return Submission(f"{words} --{variant}" if variant else words, lab, fields, files)


def _select_fields(
    words: str, command: Command[Any], changed_fields: list[Field], variant: str
) -> Iterator[Field]:
    """Yield the options that the request contains. Raises `NotThroughService` for an option that works only locally."""
    from testbed.client import NotThroughService

    for field in changed_fields:
        if field.name in command.variants or field.option.for_caller or field.option.writes:
            continue
        is_address = command.needs == "switch" and field.name == "address"
        if not is_address and (field.option.is_local or field.option.only_with not in ("", variant)):
            raise NotThroughService(
                f"{words} {field.option_names[0]} works only locally: leave it out, or leave out --server "
                "(LIGHTBED_SERVER)"
            )
        yield field


def _get_value(command: Command[Any], field: Field) -> Any:
    """Return the value of a field for a request: the text of a file, a value as text, or the value itself."""
    value = getattr(command, field.name)
    if field.option.reads:
        return Path(value).read_text(encoding="utf-8")
    if field.option.text is not None:
        return field.option.text.write(value)
    return list(value) if field.has_many_values else value


def _find_switch(client: Client, text: str) -> tuple[str, str]:
    """Return the lab and the name of a switch from its address, `NAME` or `LAB/NAME`. Raises `NotThroughService`."""
    from testbed.client import NotThroughService

    switches = [
        (lab["name"], switch["name"], switch["address"])
        for lab in client.list_labs()
        for switch in client.lab(lab["name"]).read("switches")["switches"]
    ]
    matches = [(lab, name) for lab, name, address in switches if text in (address, name, f"{lab}/{name}")]
    if len(matches) == 1:
        return matches[0]
    choices_text = ", ".join(f"{lab}/{name}" for lab, name in matches or [switch[:2] for switch in switches])
    problem = "is a switch of several labs" if matches else "is not a switch of the service's labs"
    raise NotThroughService(
        f"{text!r} {problem}; name one of {choices_text}, or leave out --server (LIGHTBED_SERVER)"
    )
