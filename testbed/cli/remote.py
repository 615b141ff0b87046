"""Commands through a service: `--server URL` or LIGHTBED_SERVER, with the token in LIGHTBED_TOKEN.

A command becomes a run there; what that printed is printed here, the files that it wrote are written here, and its exit
code is ours.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbed.output_file import write_output
from testbed.cli.intervals import at_intervals
from testbed.cli.output import print_answer
from testbed.commands.documents import CHANGES, DONE, ERROR

if TYPE_CHECKING:
    from testbed.client import Client
    from testbed.service.request import Request

_HERE = frozenset(
    {
        "lab_file",
        "as_json",
        "runs_dir",
        "words",
        "lease",
        "labs",
        "narrow",
        "force",
        "every",
        "address",
    }
)
"""Parameters that say what is asked for and how it is told, or that are carried out here."""
_OF_EVERY_REQUEST = frozenset({"lab", "labs", "text", "why"})


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request: command, lab, fields; and the files of the run that become files here."""

    words: str
    lab: str
    fields: Mapping[str, Any]
    files: Mapping[str, Path]


def carry_out(
    server: str,
    words: str,
    given: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> int:
    """Ask a service for a run, wait for its end, and print what it printed; return its exit code.

    Raises `NotThroughService` for an option that works here alone.
    """
    from testbed.client import connect

    if words == "stop":
        return _stop(server, given)
    with connect(server) as client:
        asked = _request(client, words, given, defaults)
        return at_intervals(given.get("every"), lambda: _done(client, asked), as_json=given["as_json"])


def _done(client: Client, asked: _Asked) -> int:
    run = client.wait(client.submit(asked.lab, asked.words, **asked.fields))
    output = run.output
    for name, path in asked.files.items():
        output = output.replace(f"{run.id}/{name}", str(path))
        if run.exit_code in (DONE, CHANGES):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_output(path, client.file(run.id, name))
    sys.stderr.write(run.messages)
    sys.stdout.write(output)
    sys.stdout.flush()
    if run.state == "cancelled":
        print(f"error: run {run.id} was cancelled", file=sys.stderr)
    return ERROR if run.exit_code is None else run.exit_code


def _request(client: Client, words: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> _Asked:
    """Return what is asked for. Raises `NotThroughService` for an option that works here alone."""
    from testbed.leases.choice import chosen

    words = f"{words} --narrow" if given.get("narrow") else words
    model = _model_of(words)
    files = _files(model, words, given)
    options = _options(model, words, given, defaults) | {name: True for name in model.writes if files}
    options["text"] = not given.get("as_json")
    if model.lane == "moving" and "lease" in model.model_fields and chosen():
        options["lease"] = chosen()
    if given.get("labs"):
        options["labs"] = [lab_name(path) for path in given["labs"]]
    if words == "path":
        *labs, options["source"], options["target"] = given["words"]
        given = {**given, "lab_file": Path(labs[0]) if labs else given["lab_file"]}
    lab = given.get("lab") or lab_name(given.get("lab_file") or Path())
    if "switch" in model.model_fields:
        lab, options["switch"] = _switch_named(client, given["address"])
    return _Asked(words, lab, options, files)


def _model_of(words: str) -> type[Request]:
    from testbed.service.requests import MODELS

    return MODELS[words]


def _options(
    model: type[Request], words: str, given: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    from testbed.client import NotThroughService

    options: dict[str, Any] = {}
    for name, value in given.items():
        if name in _OF_EVERY_REQUEST or name in model.writes or value in (None, [], ()):
            continue
        if name in model.model_fields:
            options[name] = _sent(name, value)
        elif name not in _HERE and value is not False and value != defaults.get(name):
            raise NotThroughService(
                f"{words} --{name.replace('_', '-')} works here alone: leave it out, or --server (LIGHTBED_SERVER)"
            )
    return options


def _files(model: type[Request], words: str, given: Mapping[str, Any]) -> dict[str, Path]:
    """Return where files of the run are written here. Raises as `check_new_file`."""
    from testbed.lab.wired_file import check_new_file

    files = {name: given[field] for field, name in model.writes.items() if given.get(field)}
    if words == "report" and not files:
        files = {"report.html": Path(f"report-{given['run_id']}.html")}
    for path in files.values():
        check_new_file(path, replace=given.get("force", True))
    return files


def _sent(name: str, value: Any) -> Any:
    """Return a value as a request holds it: the text of a file, an interval, or the value itself."""
    if isinstance(value, Path):
        return value.read_text(encoding="utf-8")
    if name == "confirm_within":
        return f"{max(1, round(value))}s"
    if name == "since":
        return datetime.fromtimestamp(value, UTC).isoformat()
    return list(value) if isinstance(value, tuple) else value


def lab_name(lab_file: Path) -> str:
    """Return the name of a lab: that in its file, or what was given where there is no such file; empty for none."""
    if lab_file == Path():
        return ""
    if not lab_file.exists():
        return str(lab_file)
    from testbed.lab.inventory import load_bare_lab

    return load_bare_lab(lab_file).name


def _switch_named(client: Client, text: str) -> tuple[str, str]:
    """Return the lab and the name of a switch, given as its address, `NAME` or `LAB/NAME`."""
    from testbed.client import NotThroughService

    switches = [
        (lab["name"], one["name"], one["address"])
        for lab in client.labs()
        for one in client.lab(lab["name"]).look("switches")["switches"]
    ]
    found = [(lab, name) for lab, name, address in switches if text in (address, name, f"{lab}/{name}")]
    if len(found) == 1:
        return found[0]
    there = ", ".join(f"{lab}/{name}" for lab, name in found or [one[:2] for one in switches])
    which = "is a switch of several labs" if found else "is no switch of the service's labs"
    raise NotThroughService(f"{text!r} {which}; name one of {there}, or leave out --server (LIGHTBED_SERVER)")


def _stop(server: str, given: Mapping[str, Any]) -> int:
    """Stop a lab, or release it, at once: no run is waited for."""
    from testbed.client import connect

    name = lab_name(given["lab_file"])
    with connect(server) as client:
        lab = client.lab(name)
        told = dict(lab.release_stop() if given["release"] else lab.stop(given["reason"]))
    if given["release"]:
        said = (
            "may move again: `testbed resume` goes on with what was stopped"
            if told["was_stopped"]
            else "was not stopped"
        )
        print_answer(told, [f"lab '{name}' {said}"], as_json=given["as_json"])
        return DONE
    lines = [
        f"operation {one} ends at its next write; a move that a device has begun goes on"
        for one in told["running"]
    ]
    first = f"lab '{name}' is stopped; `testbed stop {given['lab_file']} --release` lets it move again"
    print_answer(told, [first, *lines], as_json=given["as_json"])
    return CHANGES if told["running"] else DONE
