"""`python -m sim.lab`: a simulated lab as one process.

    python -m sim.lab [--detached] [WIRING_FILE]   start a lab; print a JSON line when ready; run until stdin ends
    python -m sim.lab --status                     list the labs on this machine as JSON
    python -m sim.lab --down [LAB_ID ...] [--all]  remove debris; also end the named live labs, or all of this user

Without WIRING_FILE the wiring document is a line of JSON on standard input.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lightbed.wording import describe_extra
from sim.lab.inventory import end_labs, find_labs, remove_debris
from sim.lab.model import LabError
from sim.twins.hosts.netns import KernelFault

if TYPE_CHECKING:
    import asyncio

    from sim.lab.model import Document

_STDIN_HANDLE = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status: 0, or 1 after printing a JSON line with the error."""
    options = _make_parser().parse_args(arguments)
    try:
        if options.status:
            return _print_json([lab.as_json() for lab in find_labs()])
        if options.down is not None:
            return _print_json({"removed": _take_down(options.down, all_labs=options.all)})
        return _supervise(options.wiring, is_detached=options.detached)
    except (LabError, KernelFault) as error:
        return _print_error(error.what, error.hint, error.code)
    except OSError as error:
        return _print_error(
            str(error) or type(error).__name__, "Correct the cause, then start the lab again", "machine"
        )


def _print_error(error: str, hint: str, code: str) -> int:
    _print_json({"ready": False, "error": error, "hint": hint, "code": code})
    return 1


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sim.lab", description="a simulated lab as one process")
    parser.add_argument("wiring", nargs="?", type=Path, help="wiring document; default: a line on stdin")
    parser.add_argument("--detached", action="store_true", help="keep running when standard input ends")
    parser.add_argument("--status", action="store_true", help="list the labs on this machine")
    parser.add_argument("--down", nargs="*", metavar="LAB_ID", help="remove debris, and end these labs")
    parser.add_argument("--all", action="store_true", help="with --down: also end all live labs of this user")
    return parser


def _print_json(value: object) -> int:
    print(json.dumps(value), flush=True)
    return 0


def _take_down(lab_ids: Sequence[str], *, all_labs: bool) -> list[str]:
    """End the named labs and, with `all_labs`, all labs of this user; if no lab is named, remove debris. Return ids."""
    if all_labs:
        own_labs = [lab.id for lab in find_labs() if not lab.belongs_to_other_user]
        return list(end_labs(sorted({*own_labs, *lab_ids})))
    return list(end_labs(lab_ids) if lab_ids else remove_debris())


def _supervise(wiring_path: Path | None, *, is_detached: bool) -> int:
    import asyncio  # imported late, because --status and --down do not need it

    document = _parse(_read_document(wiring_path))
    return asyncio.run(_run(document, is_detached=is_detached))


def _parse(text: str) -> Document:
    """Parse the document; imported late, because --status and --down work with the standard library alone."""
    try:
        from sim.lab.document import parse_document
    except ModuleNotFoundError as error:
        raise LabError(
            f"{error.name} is not installed", hint=describe_extra("sim"), code="no_library"
        ) from error
    return parse_document(text)


def _read_document(wiring_path: Path | None) -> str:
    """Return the text of the document, from a file or from the first line of standard input."""
    if wiring_path is None:
        return _read_first_line()
    try:
        return wiring_path.read_text("utf-8")
    except OSError as error:
        raise LabError(
            f"{wiring_path}: {error.strerror}", hint="Name a readable wiring document", code="document"
        ) from error


def _read_first_line() -> str:
    """Read a single line, without a buffer: the rest of standard input serves only to detect its end."""
    text = bytearray()
    while not text.endswith(b"\n") and (byte := os.read(_STDIN_HANDLE, 1)):
        text += byte
    return text.decode("utf-8", errors="replace")


async def _run(document: Document, *, is_detached: bool) -> int:
    """Run the lab until a request to end, then take it down. Raise `LabError` if it was not ready yet."""
    import asyncio

    ready_event = asyncio.Event()
    lab_task = asyncio.create_task(_run_until_cancelled(document, ready_event))
    _install_end_handlers(lab_task, is_detached=is_detached)
    try:
        await lab_task
    except asyncio.CancelledError:
        if ready_event.is_set():
            return 0
    raise LabError("stopped before the lab was ready", hint="Start it again", code="interrupted")


async def _run_until_cancelled(document: Document, ready_event: asyncio.Event) -> None:
    import asyncio

    # imported late, like the parser in `_parse`
    from sim.lab.supervisor import start_lab

    async with AsyncExitStack() as stack:
        lab = await start_lab(document, stack)
        ready_event.set()
        _print_json(lab.make_ready_line())
        await asyncio.get_running_loop().create_future()


def _install_end_handlers(lab_task: asyncio.Task[None], *, is_detached: bool) -> None:
    """End the lab at SIGTERM, SIGINT and, unless detached, at the end of standard input.

    Only the first request counts: a second one must not interrupt the cleanup.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    is_ending = False

    def request_end() -> None:
        nonlocal is_ending
        if not is_ending:
            is_ending = True
            lab_task.cancel()

    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, request_end)
    if is_detached:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        return

    def watch_stdin() -> None:
        while os.read(_STDIN_HANDLE, 4096):
            pass
        with suppress(RuntimeError):  # the lab failed to start, and the loop is closed already
            loop.call_soon_threadsafe(request_end)

    threading.Thread(target=watch_stdin, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
