"""Recordings of sessions with a device, and their replay in tests that need no device.

    with record_sessions(Path("switch7.jsonl")):
        with open_switch("polatis+tl1://10.0.0.7") as switch:
            switch.read()

Each line is a JSON object: seconds since the start, the event (`open`, `sent`, `received`, `closed`, `lost`),
and the bytes as Latin-1 text. Passwords, HTTP authorisation and cookies are redacted before they are written.
`ReplayTransport` is a transport that answers from a recording, and refuses commands that were not recorded.
"""

from __future__ import annotations

import json
import re
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TextIO

from ocs_drivers.credentials import Credentials, list_used_credentials
from ocs_drivers.errors import OcsError, ProtocolDesync, Timeout
from ocs_drivers.timing import Deadline
from ocs_drivers.transports.transport import Transport, make_connection_lost

_AUTHORIZATION = re.compile(rb"(?i)^(authorization\s*:[ \t]*)[^\r\n]*", re.MULTILINE)
_COOKIES = re.compile(rb"(?i)^(?:set-)?cookie\s*:[^\r\n]*", re.MULTILINE)
_COOKIE_VALUE = re.compile(rb"([:;][ \t]*(?!(?i:path|domain|expires|max-age|samesite)=)[^=;\s]+=)[^;]*")
_TL1_LOGIN = re.compile(rb"(?i)(ACT-USER:[^:]*:[^:]*:[^:]*:[^:]*:)[^;]*")
_REDACTED = b"***"

_recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


def redact(data: bytes, accounts: frozenset[Credentials]) -> bytes:
    """Redact passwords, authorisation headers and cookies.

    >>> redact(b"ACT-USER::admin:1::secret;", frozenset())
    b'ACT-USER::admin:1::***;'
    """
    data = _TL1_LOGIN.sub(rb"\1" + _REDACTED, _AUTHORIZATION.sub(rb"\1" + _REDACTED, data))
    data = _COOKIES.sub(lambda line: _COOKIE_VALUE.sub(rb"\1" + _REDACTED, line[0]), data)
    for account in accounts:
        basic = b64encode(f"{account.user}:{account.password}".encode())
        data = data.replace(basic, _REDACTED)
        # Otherwise every mention of the user name would be redacted.
        if len(account.password) > 1 and account.password != account.user:
            data = data.replace(account.password.encode(), _REDACTED)
    return data


class Recorder:
    """Writer of the bytes that all transports inside one `record_sessions` send and receive."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._started_s = time.monotonic()

    def write_entry(self, device: str, kind: str, data: bytes = b"") -> None:
        """Write one line and flush it, so that a crash loses nothing."""
        entry = {"s": round(time.monotonic() - self._started_s, 6), "device": device, "what": kind}
        if data:
            entry["data"] = redact(data, list_used_credentials()).decode("latin-1")
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()


@contextmanager
def record_sessions(path: Path) -> Iterator[None]:
    """Record, to a new file, all sessions with switches that are opened in the `with` block.

    Raises `FileExistsError` if the file exists.
    """
    with path.open("x", encoding="utf-8") as file:
        token = _recorder.set(Recorder(file))
        try:
            yield
        finally:
            _recorder.reset(token)


def record(transport: Transport, device: str) -> Transport:
    """Return `transport`; inside `record_sessions`, return a wrapper that records its traffic."""
    recorder = _recorder.get()
    return transport if recorder is None else _RecordingTransport(transport, device, recorder)


class _RecordingTransport:
    """A transport that records its traffic."""

    def __init__(self, transport: Transport, device: str, recorder: Recorder) -> None:
        self._transport = transport
        self._device = device
        self._recorder = recorder

    @property
    def is_open(self) -> bool:
        return self._transport.is_open

    def open(self, timeout_s: float) -> None:
        self._transport.open(timeout_s)
        self._recorder.write_entry(self._device, "open")

    def close(self) -> None:
        if self._transport.is_open:
            self._recorder.write_entry(self._device, "closed")
        self._transport.close()

    def has_input(self) -> bool:
        return self._transport.has_input()

    def send(self, data: bytes, deadline: Deadline) -> None:
        self._recorder.write_entry(self._device, "sent", data)
        self._transport.send(data, deadline)

    def receive(self, deadline: Deadline) -> bytes:
        try:
            data = self._transport.receive(deadline)
        except OcsError as error:
            if not (deadline.is_part and isinstance(error, Timeout)):
                self._recorder.write_entry(self._device, "lost")
            raise
        self._recorder.write_entry(self._device, "received", data)
        return data


class ReplayTransport:
    """A transport that replays a recording to a driver that repeats the same operations.

    Raises `ProtocolDesync` if the driver does not send the recorded bytes.
    """

    def __init__(self, path: Path) -> None:
        lines = path.read_text(encoding="utf-8").splitlines()
        entries = [json.loads(line) for line in lines]
        self._entries = [
            (entry["what"], str(entry.get("data", "")).encode("latin-1"))
            for entry in entries
            if entry["what"] in {"sent", "received", "lost"}
        ]
        self._device = f"replay of {path.name}"
        self._next_index = 0
        self._is_open = False

    @property
    def is_open(self) -> bool:
        """True once the driver has opened the transport."""
        return self._is_open

    @property
    def is_finished(self) -> bool:
        """True once every recorded byte was sent and received."""
        return self._next_index == len(self._entries)

    def open(self, timeout_s: float) -> None:
        """Start, or continue after a lost connection."""
        del timeout_s
        self._is_open = True

    def close(self) -> None:
        """Mark the transport as closed."""
        self._is_open = False

    def has_input(self) -> bool:
        """Return True if the next entry of the recording was received, or is a lost connection."""
        return self._next_index < len(self._entries) and self._entries[self._next_index][0] != "sent"

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Compare with the recorded bytes; redacted parts count as equal. Raise `ProtocolDesync` if they differ."""
        del deadline
        accounts = list_used_credentials()
        recorded_data = self._use_entry("sent", data)
        if redact(recorded_data, accounts) != redact(data, accounts):
            raise self._make_mismatch(recorded_data, redact(data, accounts))

    def receive(self, deadline: Deadline) -> bytes:
        """Return the bytes received at this point of the recording. Raise `ConnectionLost` if it broke there."""
        del deadline
        if self._next_index < len(self._entries) and self._entries[self._next_index][0] == "lost":
            self._next_index += 1
            raise make_connection_lost(self._device, "as recorded")
        return self._use_entry("received", b"")

    def _use_entry(self, expected_kind: str, data: bytes) -> bytes:
        if self._next_index == len(self._entries):
            raise self._make_mismatch(b"the end of the recording", data)
        kind, recorded_data = self._entries[self._next_index]
        if kind != expected_kind:
            raise self._make_mismatch(
                f"{kind} {recorded_data!r}".encode(), data or b"(waiting for an answer)"
            )
        self._next_index += 1
        return recorded_data

    def _make_mismatch(self, expected: bytes, actual: bytes) -> ProtocolDesync:
        return ProtocolDesync(
            "the driver does not follow the recording",
            device=self._device,
            sent=actual.decode("latin-1"),
            received=expected.decode("latin-1"),
            hint="The driver no longer sends the bytes that were recorded: record again, or correct the driver.",
        )
