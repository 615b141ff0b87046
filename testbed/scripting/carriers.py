"""Two ways to a lab, with one interface: commands run in this process, or as runs of a service."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, get_origin

from lightbed.errors import LightbedError
from testbed.commands.declare import Command, Field, carry_out, documents_of, fields_of
from testbed.commands.documents import Document
from testbed.commands.place import Place
from testbed.commands.progress import Narrator, Progress, narrate, report_progress
from testbed.commands.table import load_command
from testbed.errors import UsageError
from testbed.leases.choice import get_selected_lease, select_lease
from testbed.scripting.read_document import choose_document, read_document

if TYPE_CHECKING:
    from testbed.client import Client, Run
    from testbed.lab.simulated.lifecycle import SimulatedLab

POLL_S = 0.2
"""Time between two looks at the journal for new events."""


@dataclass(frozen=True, slots=True)
class LabEvent:
    """An event of a lab's journal: its number, its kind (`run` or `step`), its name, and its JSON document."""

    number: int
    kind: str
    event: str
    document: Mapping[str, Any]


class Carrier(Protocol):
    """A way to run commands on a lab."""

    def list_hosts(self) -> tuple[str, ...]:
        """Return the names of the lab's hosts."""

    def find_lab_file(self) -> Path:
        """Return the lab file. Raises `UsageError` for a lab of a service."""

    def run(self, words: str, command: Command[Any], progress: Progress | None) -> Document:
        """Run a command and return its document. Raises the command's errors."""

    def events(self, after: int | None) -> Iterator[LabEvent]:
        """Yield the events after a number, and new ones as they happen; without a number only new ones."""

    def close(self) -> None:
        """Release what the carrier holds."""


@contextmanager
def use_lease(lease: str) -> Iterator[None]:
    """Make changes under this lease in the block; an empty id keeps the lease that is selected."""
    before = get_selected_lease()
    select_lease(lease or before)
    try:
        yield
    finally:
        select_lease(before)


@dataclass
class LocalCarrier:
    """Runs commands in this process, on a lab file. `simulated` is the lab that was started for it, or None."""

    lab_file: Path
    runs_dir: Path
    simulated: SimulatedLab | None = None

    def list_hosts(self) -> tuple[str, ...]:
        """Return the names of the lab's hosts."""
        from testbed.lab.inventory import load_lab

        return tuple(host.name for host in load_lab(self.lab_file).hosts)

    def find_lab_file(self) -> Path:
        """Return the lab file."""
        return self.lab_file

    def run(self, words: str, command: Command[Any], progress: Progress | None) -> Document:
        """Run a command and return its document. Raises the command's errors."""
        place = Place(self.lab_file, self.runs_dir, is_quiet=True)
        with report_progress(progress):
            document: Document = carry_out(command, place)
        return document

    def events(self, after: int | None) -> Iterator[LabEvent]:
        """Yield the events of the lab in the journal of the runs directory."""
        from testbed.lab.inventory import load_lab
        from testbed.service.events import EventLog
        from testbed.storage.address import address_in
        from testbed.storage.database import Database

        lab, database = load_lab(self.lab_file).name, Database(address_in(self.runs_dir))
        try:
            log = EventLog(database)
            number = log.newest() if after is None else after
            while True:
                page = log.after(number)
                for each in page:
                    number = each.number
                    if each.lab == lab:
                        yield _read_event(each.number, each.kind, _data_of(each.text))
                if not page:
                    time.sleep(POLL_S)
        finally:
            database.close()

    def close(self) -> None:
        """Stop the simulated lab if it was started for this object."""
        if self.simulated is not None:
            self.simulated.close()


def _data_of(text: bytes) -> Mapping[str, Any]:
    """Return the document of an encoded server-sent event."""
    lines = text.decode().splitlines()
    data = "\n".join(line.removeprefix("data:") for line in lines if line.startswith("data:"))
    document: dict[str, Any] = json.loads(data)
    return document


def _read_event(number: int, kind: str, document: Mapping[str, Any]) -> LabEvent:
    return LabEvent(number, kind, str(document.get("event", "")), document)


@dataclass
class ServiceCarrier:
    """Runs commands as runs of a service."""

    client: Client
    lab: str

    def list_hosts(self) -> tuple[str, ...]:
        """Return the names of the lab's hosts."""
        return tuple(host["name"] for host in self.client.lab(self.lab).read("hosts")["hosts"])

    def find_lab_file(self) -> Path:
        """Raise `UsageError`."""
        raise UsageError(
            f"lab {self.lab!r} is that of a service, and plans are made from a lab file: open the file"
        )

    def run(self, words: str, command: Command[Any], progress: Progress | None) -> Document:
        """Submit a run, wait, and return its document. A Ctrl-C cancels the run.

        Raises the error of the run as the class that the command raises locally, and the errors of the client.
        """
        from testbed.client import ServiceRefused
        from testbed.scripting.submission import make_submission

        submission = make_submission(self.client, words, command, self.lab)
        try:
            run = self.client.submit(submission.lab, submission.words, **submission.fields)
        except ServiceRefused as error:
            raise make_error(error.problem, default=error) from error
        try:
            with report_progress(progress), narrate() as narrator:
                run = self._wait(run, narrator)
        except KeyboardInterrupt:
            self.client.cancel(run.id)
            raise
        submission.save_files(self.client, run)
        return _read_result(words, command, run)

    def _wait(self, run: Run, narrator: Narrator) -> Run:
        for event in self.client.events(run=run.id):
            if event.kind == "step":
                narrator.note(f"{event.document.get('device', '')}: {event.event}")
            if event.kind == "run" or (event.kind == "snapshot" and not event.document["runs"]):
                run = self.client.read_run(run.id)
                if run.has_ended:
                    return run
        raise AssertionError("a stream of events does not end")

    def events(self, after: int | None) -> Iterator[LabEvent]:
        """Yield the events of the lab as the service streams them."""
        for event in self.client.events(lab=self.lab, after=after):
            if event.kind != "snapshot":
                yield _read_event(event.number, event.kind, event.document)

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
    return read_document(choose_document(documents_of(type(command)), result), result)


class RunFailed(UsageError, code="service.run", who="unknown"):
    """A run of the service ended without a document, for example because it was cancelled."""


def make_error(problem: Mapping[str, Any], default: LightbedError | None = None) -> LightbedError:
    """Return the error of a JSON document, as an instance of the class with its code; `default` if none has it."""
    import testbed.errors
    import testbed.operation_errors
    import testbed.service_errors  # noqa: F401  these define the classes
    from ocs_drivers import errors  # noqa: F401

    kinds = (each for each in _subclasses(LightbedError) if each.code == problem.get("code"))
    kind = next(kinds, None)
    if kind is None and default is not None:
        return default
    error = (kind or LightbedError).__new__(
        kind or LightbedError
    )  # constructors differ: they take parts of messages
    Exception.__init__(error, problem.get("message") or problem.get("detail"))
    return error


def _subclasses(kind: type[LightbedError]) -> Iterator[type[LightbedError]]:
    """Yield the classes below a class, bases first: a class without a code of its own has that of its base."""
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)


def make_command(words: str, positional: tuple[Any, ...], options: Mapping[str, Any]) -> Command[Any]:
    """Return the command with these options; positional values are its arguments, in order.

    A list is taken for several values, and a single value for one of several. Raises `UsageError` for an unknown
    option.
    """
    declared = load_command(words)
    assert declared is not None, words
    fields = {each.name: each for each in fields_of(declared)}
    arguments = [each.name for each in fields.values() if each.option.is_argument]
    given = dict(zip(arguments, positional, strict=False)) | dict(options)
    unknown = sorted(set(options) - set(fields))
    if unknown or len(positional) > len(arguments):
        what = unknown[0] if unknown else f"{len(positional)} positional values"
        known = ", ".join(fields)
        raise UsageError(f"{words} has no option {what!r}: its options are {known}")
    return declared(**{name: _convert(fields[name], value) for name, value in given.items()})


def _convert(field: Field, value: Any) -> Any:
    """Return a value as the field holds it: tuples, paths, and seconds for a text like `10m`.

    Raises `UsageError` for a value that the field does not take, as the command line does.
    """
    kinds, option = (field.kind, *get_args(field.kind)), field.option
    choices = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    if choices and value is not None and value not in choices:
        raise UsageError(f"{field.name}={value!r} is none of {', '.join(map(repr, choices))}")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    least, most = (option.least or 0), option.most
    if is_number and (value < least or (most is not None and value > most)):
        bound = f"{least:g} or more" if most is None else f"{least:g} to {most:g}"
        raise UsageError(f"{field.name}={value!r} is out of range: {bound}")
    if field.has_several:
        return (value,) if isinstance(value, str) else tuple(value)
    if not isinstance(value, str) or field.kind is str:
        return value
    if field.kind is Path:
        return Path(value)
    return field.option.text.parse(value) if field.option.text is not None else value
