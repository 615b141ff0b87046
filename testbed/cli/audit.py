"""`testbed audit`: who did what through the service, and whether the log is as it was written."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from testbed.cli import options
from testbed.cli.output import print_answer
from testbed.commands.documents import CHANGES, DONE


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("audit")(audit)


def audit(
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the whole log; exit code 2 names the first broken line.")
    ] = False,
    expect: Annotated[
        str,
        typer.Option(
            "--expect", metavar="HASH", help="With --verify: the log must hold the line with this hash."
        ),
    ] = "",
    last: Annotated[
        int, typer.Option("--last", metavar="N", min=1, help="So many of the newest lines.")
    ] = 50,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Show who did what through the service. With --verify exit code 2 when a line was changed or removed.

    A log whose end was cut is whole in itself: --expect HASH compares it with a hash that was kept elsewhere.
    """
    from testbed.service.audit import read_audit
    from testbed.service.audit import verify as verify_log
    from testbed.storage.address import address_in

    address = address_in(runs_dir)
    if expect and not verify:
        raise typer.BadParameter("it belongs to --verify", param_hint="--expect")
    if not verify:
        entries = read_audit(address, last=last)
        lines = [_line(one) for one in entries] or [f"the audit log of {runs_dir} is empty"]
        print_answer({"entries": entries}, lines, as_json=as_json)
        return DONE
    found = verify_log(address, expect)
    document = {"whole": found.broken is None, "lines": found.lines, "newest": found.newest}
    document |= {"broken": found.broken, "reason": found.reason}
    said = f"whole: {found.lines} lines, the newest {found.newest}"
    if found.broken is not None:
        said = f"broken at line {found.broken}: {found.reason}; the lines before it are whole"
    print_answer(document, [said], as_json=as_json)
    return DONE if found.broken is None else CHANGES


def _line(entry: dict[str, Any]) -> str:
    lab = f" on {entry['lab']}" if entry["lab"] else ""
    why = f": {entry['why']}" if entry["why"] else ""
    plan = f" plan {entry['plan'][:12]}" if entry["plan"] else ""
    who = f"{entry['who']} ({entry['role']})"
    line = f"{entry['number']} {entry['at'][:19]} {who} {entry['action']}{lab}{plan}, {entry['outcome']}{why}"
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in line)
