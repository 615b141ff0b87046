"""Commands through a service: `--server URL` or LIGHTBED_SERVER, with the token in LIGHTBED_TOKEN.

A command becomes a run there; what that printed is printed here, and its exit code is ours.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.cli.output import CHANGES, DONE, ERROR, print_answer

if TYPE_CHECKING:
    from testbed.client import Run

_OURS = frozenset({"lab_file", "as_json", "runs_dir", "words", "lease"})


def carry_out(server: str, words: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> int:
    """Ask a service for a run, wait for its end, and print what it printed; return its exit code."""
    from testbed.client import connect

    if words == "stop":
        return _stop(server, given)
    lab, options = _request(words, given, defaults)
    with connect(server) as client:
        run = client.wait(client.submit(lab, words, text=not given.get("as_json"), **options))
    return _told(run)


def _told(run: Run) -> int:
    sys.stderr.write(run.messages)
    sys.stdout.write(run.output)
    sys.stdout.flush()
    if run.state == "cancelled":
        print(f"error: run {run.id} was cancelled", file=sys.stderr)
    return ERROR if run.exit_code is None else run.exit_code


def _request(words: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the lab and the fields of a request. Raises `NotThroughService` for an option that works here alone."""
    from testbed.client import NotThroughService
    from testbed.leases.choice import chosen
    from testbed.service.request import command_of
    from testbed.service.requests import REQUESTS

    (model,) = [one for one in REQUESTS if command_of(one) == words]
    fields = set(model.model_fields)
    options: dict[str, Any] = {}
    for name, value in given.items():
        if name in fields and name not in {"lab", "text", "why"}:
            if value not in (None, [], ()):
                options[name] = _sent(name, value)
        elif name not in _OURS and value not in (None, False, [], ()) and value != defaults.get(name):
            raise NotThroughService(
                f"{words} --{name.replace('_', '-')} works here alone: leave it out, or --server (LIGHTBED_SERVER)"
            )
    lab_file = given.get("lab_file")
    if words == "path":
        *labs, options["source"], options["target"] = given["words"]
        lab_file = Path(labs[0]) if labs else lab_file
    if "lease" in fields and chosen() and words in {"apply", "repair", "resume", "rollback"}:
        options["lease"] = chosen()
    return lab_name(lab_file or Path()), options


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
    """Return the name of a lab: that in its file, or what was given where there is no such file."""
    if not lab_file.exists():
        return str(lab_file)
    from testbed.lab.inventory import load_lab

    return load_lab(lab_file).name


def _stop(server: str, given: Mapping[str, Any]) -> int:
    """Stop a lab, or release it, at once: no run is waited for."""
    from testbed.client import connect

    name = lab_name(given["lab_file"])
    with connect(server) as client:
        lab = client.lab(name)
        told = dict(lab.release_stop() if given["release"] else lab.stop(given["why"]))
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
