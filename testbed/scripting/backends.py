"""Backends, which run commands on a lab: in this process, or as runs of a service."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, get_origin

from lightbed.errors import LightbedError
from testbed.commands.context import CommandContext
from testbed.commands.declare import REQUIRED, Command, Field, carry_out, list_document_types, list_fields
from testbed.commands.documents import Document
from testbed.commands.progress import Narrator, ProgressCallback, narrate, report_progress
from testbed.commands.table import load_command
from testbed.errors import UsageError
from testbed.operate.engine.consent import call_on_stop
from testbed.scripting.read_document import choose_document_type, read_document

if TYPE_CHECKING:
    from testbed.client import AsyncClient, Client, Run
    from testbed.lab.simulated.lifecycle import SimulatedLab
    from testbed.service.events import EventLog

POLL_S = 0.2
"""Seconds between two reads of the journal for new events."""


@dataclass(frozen=True, slots=True)
class LabEvent:
    """An event of a lab's journal: its number, its kind (`run` or `step`), its name, and its JSON document."""

    number: int
    kind: str
    event: str
    document: Mapping[str, Any]


class Backend(Protocol):
    """A way to run commands on a lab."""

    def list_hosts(self) -> tuple[str, ...]:
        """Return the names of the lab's hosts."""

    def find_lab_file(self) -> Path:
        """Return the lab file. Raises `UsageError` for a lab of a service."""

    def run(self, words: str, command: Command[Any], progress: ProgressCallback | None) -> Document:
        """Run a command and return its document. Raises the command's errors."""

    def find_newest_event(self) -> int:
        """Return the number of the newest event; 0 if there is none."""

    def stream_events(self, last_number: int) -> Iterator[LabEvent]:
        """Yield the events after a number, and new ones as they happen."""

    def stream_events_async(self, last_number: int) -> AsyncIterator[LabEvent]:
        """Yield the same events to a coroutine."""

    def extend_lease(self, lease: str) -> None:
        """Extend a lease, counted from now. This may be called from another thread."""

    def close(self) -> None:
        """Release the resources of the backend."""


def _ignore(_done: int, _total: int, _text: str) -> None:
    """Report no progress."""


@dataclass
class LocalBackend:
    """Runs commands in this process, on a lab file. `simulated_lab` is the lab that was started for it, or None."""

    lab_file: Path
    runs_dir: Path
    simulated_lab: SimulatedLab | None = None

    def list_hosts(self) -> tuple[str, ...]:
        """Return the names of the lab's hosts."""
        from testbed.lab.inventory import load_lab

        return tuple(host.name for host in load_lab(self.lab_file).hosts)

    def find_lab_file(self) -> Path:
        """Return the lab file."""
        return self.lab_file

    def run(self, words: str, command: Command[Any], progress: ProgressCallback | None) -> Document:
        """Run a command and return its document. Raises the command's errors."""
        context = CommandContext(self.lab_file, self.runs_dir, is_quiet=True)
        with report_progress(progress):
            document: Document = carry_out(command, context)
        return document

    @contextmanager
    def _open_log(self) -> Iterator[EventLog]:
        from testbed.service.events import EventLog
        from testbed.storage.address import get_database_address
        from testbed.storage.database import Database

        database = Database(get_database_address(self.runs_dir))
        try:
            yield EventLog(database)
        finally:
            database.close()

    def find_newest_event(self) -> int:
        """Return the number of the newest event in the journal of the runs directory; 0 if there is none."""
        with self._open_log() as log:
            return log.find_newest_number()

    def stream_events(self, last_number: int) -> Iterator[LabEvent]:
        """Yield the events of the lab in the journal of the runs directory."""
        with self._open_log() as log:
            while True:
                page = self._read_page(log, last_number)
                for number, event in page:
                    last_number = number
                    if event is not None:
                        yield event
                if not page:
                    time.sleep(POLL_S)

    async def stream_events_async(self, last_number: int) -> AsyncIterator[LabEvent]:
        """Yield the same events to a coroutine."""
        with self._open_log() as log:
            while True:
                page = await asyncio.to_thread(self._read_page, log, last_number)
                for number, event in page:
                    last_number = number
                    if event is not None:
                        yield event
                if not page:
                    await asyncio.sleep(POLL_S)

    def _read_page(self, log: EventLog, last_number: int) -> list[tuple[int, LabEvent | None]]:
        """Return the next events with their numbers; an event of another lab is None."""
        from testbed.lab.inventory import load_lab

        lab = load_lab(self.lab_file).name
        return [
            (
                event.number,
                _read_event(event.number, event.kind, _parse_data(event.text)) if event.lab == lab else None,
            )
            for event in log.read_after(last_number)
        ]

    def extend_lease(self, lease: str) -> None:
        """Extend a lease, counted from now."""
        self.run("lease extend", make_command("lease extend", (lease,), {}), _ignore)

    def close(self) -> None:
        """Stop the simulated lab if it was started for this object."""
        if self.simulated_lab is not None:
            self.simulated_lab.close()


def _parse_data(text: bytes) -> Mapping[str, Any]:
    """Return the document of an encoded server-sent event."""
    lines = text.decode().splitlines()
    data = "\n".join(line.removeprefix("data:") for line in lines if line.startswith("data:"))
    document: dict[str, Any] = json.loads(data)
    return document


def _read_event(number: int, kind: str, document: Mapping[str, Any]) -> LabEvent:
    return LabEvent(number, kind, str(document.get("event", "")), document)


@dataclass
class ServiceBackend:
    """Runs commands as runs of a service."""

    client: Client
    lab_name: str
    connect_async: Callable[[], AsyncClient]
    """Open another connection to the service, for a coroutine."""

    def list_hosts(self) -> tuple[str, ...]:
        """Return the names of the lab's hosts."""
        return tuple(host["name"] for host in self.client.lab(self.lab_name).read("hosts")["hosts"])

    def find_lab_file(self) -> Path:
        """Raise `UsageError`."""
        raise UsageError(
            f"lab {self.lab_name!r} belongs to a service, and plans are made from a lab file: open the file"
        )

    def run(self, words: str, command: Command[Any], progress: ProgressCallback | None) -> Document:
        """Submit a run, wait, and return its document. A Ctrl-C cancels the run.

        Raises the error of the run as the class that the command raises locally, and the errors of the client.
        """
        from testbed.client import ServiceRefused
        from testbed.scripting.submission import make_submission

        submission = make_submission(self.client, words, command, self.lab_name)
        try:
            run = self.client.submit(submission.lab_name, submission.command_words, **submission.fields)
        except ServiceRefused as error:
            raise make_error(error.problem, default=error) from error
        with (
            report_progress(progress),
            narrate() as narrator,
            call_on_stop(lambda: self.client.cancel(run.id)),
        ):
            try:
                run = self._wait_for_run(run, narrator)
            except KeyboardInterrupt:
                self.client.cancel(run.id)
                self._wait_for_run(
                    run, narrator
                )  # the current step ends first; a second Ctrl-C leaves from here
                raise
        submission.save_files(self.client, run)
        return _read_result(words, command, run)

    def _wait_for_run(self, run: Run, narrator: Narrator) -> Run:
        for event in self.client.events(run=run.id):
            if event.kind == "step":
                narrator.note(f"{event.document.get('device', '')}: {event.event}")
            if event.kind == "run" or (event.kind == "snapshot" and not event.document["runs"]):
                run = self.client.read_run(run.id)
                if run.has_ended:
                    return run
        raise AssertionError("a stream of events does not end")

    def find_newest_event(self) -> int:
        """Return the number of the newest event, read from the snapshot at the start of a stream."""
        return next(iter(self.client.events(lab=self.lab_name))).number

    def stream_events(self, last_number: int) -> Iterator[LabEvent]:
        """Yield the events of the lab as the service streams them."""
        for event in self.client.events(lab=self.lab_name, after=last_number):
            if event.kind != "snapshot":
                yield _read_event(event.number, event.kind, event.document)

    async def stream_events_async(self, last_number: int) -> AsyncIterator[LabEvent]:
        """Yield the same events to a coroutine."""
        async with self.connect_async() as client:
            async for event in client.events(lab=self.lab_name, after=last_number):
                if event.kind != "snapshot":
                    yield _read_event(event.number, event.kind, event.document)

    def extend_lease(self, lease: str) -> None:
        """Extend a lease, counted from now."""
        self.client.lab(self.lab_name).extend_lease(lease)

    def close(self) -> None:
        """Close the connections."""
        self.client.close()


def _read_result(words: str, command: Command[Any], run: Run) -> Document:
    """Return the document of a run that has ended. Raises the run's error."""
    result = run.result
    if not isinstance(result, Mapping):
        reason = run.messages.strip() or f"exit code {run.exit_code}"
        raise RunFailed(f"run {run.id} ({words}) of the service is {run.state}: {reason}")
    if "error" in result:
        raise make_error(result["error"])
    return read_document(choose_document_type(list_document_types(type(command)), result), result)


class RunFailed(UsageError, code="service.run", who="unknown"):
    """A run of the service ended without a document, for example because it was cancelled."""


def make_error(problem: Mapping[str, Any], default: LightbedError | None = None) -> LightbedError:
    """Return the error of a JSON document, as an instance of the class with its code.

    For an unknown code, return `default`, or else a `LightbedError`.
    """
    import testbed.errors
    import testbed.operation_errors
    import testbed.service_errors  # noqa: F401  these define the classes
    from ocs_drivers import errors  # noqa: F401

    error_types = (
        error_type
        for error_type in _yield_subclasses(LightbedError)
        if error_type.code == problem.get("code")
    )
    error_type = next(error_types, None)
    if error_type is None and default is not None:
        return default
    error_type, message = (
        error_type or LightbedError,
        problem.get("message") or problem.get("detail") or "unknown error",
    )
    try:
        error = error_type(message)
    except TypeError:  # its constructor takes the parts of the message
        error = error_type.__new__(error_type)
        Exception.__init__(error, message)
    error.code = str(problem.get("code", error.code))
    vars(error).update({name: problem[name] for name in ("who", "hint") if name in problem})
    return error


def _yield_subclasses(base: type[LightbedError]) -> Iterator[type[LightbedError]]:
    """Yield the subclasses of a class, bases first, because a class without its own code has the code of its base."""
    for subclass in base.__subclasses__():
        yield subclass
        yield from _yield_subclasses(subclass)


def make_command(words: str, positional: tuple[Any, ...], options: Mapping[str, Any]) -> Command[Any]:
    """Return the command with these options; positional values are its arguments, in order.

    An option with several values takes a list or one text. Raises `UsageError` for an unknown or missing option and for
    an invalid value.
    """
    command_type = load_command(words)
    assert command_type is not None, words
    field_by_name = {field.name: field for field in list_fields(command_type)}
    argument_names = [field.name for field in field_by_name.values() if field.option.is_argument]
    value_by_name = dict(zip(argument_names, positional, strict=False)) | dict(options)
    unknown_options = sorted(set(options) - set(field_by_name))
    if unknown_options or len(positional) > len(argument_names):
        unknown_text = unknown_options[0] if unknown_options else f"{len(positional)} positional values"
        names_text = ", ".join(field_by_name)
        raise UsageError(f"{words} has no option {unknown_text!r}: its options are {names_text}")
    duplicates = sorted(set(options).intersection(argument_names[: len(positional)]))
    if duplicates:
        raise UsageError(f"{words}: {duplicates[0]!r} is given by position and by name: leave one out")
    missing_options = [
        name
        for name, field in field_by_name.items()
        if field.default is REQUIRED and name not in value_by_name
    ]
    if missing_options:
        raise UsageError(f"{words} needs {missing_options[0]!r}")
    return command_type(
        **{name: _convert_value(field_by_name[name], value) for name, value in value_by_name.items()}
    )


def _convert_value(field: Field, value: Any) -> Any:
    """Return a value converted for a field: to a tuple, a path, or seconds for a text like `10m`.

    Raises `UsageError` for an invalid value, as the command line does.
    """
    option, choices = field.option, _list_choices(field.value_type)
    if value is None and (field.is_optional or field.default is None):
        return None
    if choices and value not in choices:
        raise UsageError(f"{field.name}={value!r} is none of {', '.join(map(repr, choices))}")
    if field.has_many_values:
        return (value,) if isinstance(value, str) else tuple(value)
    if isinstance(value, str) and field.value_type is not str:
        if field.value_type is Path:
            return Path(value)
        if option.text is not None:
            return option.text.parse(value)
    accepted_types = {float: (int, float), Path: (str, os.PathLike)}.get(
        field.value_type, (field.value_type,)
    )
    is_plain = field.value_type in (bool, int, float, str, Path)
    if is_plain and (
        not isinstance(value, accepted_types) or (isinstance(value, bool) and field.value_type is not bool)
    ):
        raise UsageError(f"{field.name}={value!r} is not of type {field.value_type.__name__}")
    if isinstance(value, int | float) and field.value_type is not bool:
        minimum, maximum = (option.least or 0), option.most
        if value < minimum or (maximum is not None and value > maximum):
            bound_text = f"{minimum:g} or more" if maximum is None else f"{minimum:g} to {maximum:g}"
            raise UsageError(f"{field.name}={value!r} is out of range: {bound_text}")
    return value


def _list_choices(kind: Any) -> tuple[Any, ...]:
    """Return the values of a `Literal`, also as a part of a union; empty for another type."""
    kinds = (kind, *get_args(kind))
    return tuple(
        choice
        for alternative in kinds
        if get_origin(alternative) is Literal
        for choice in get_args(alternative)
    )
