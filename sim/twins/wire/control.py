"""The control socket of a simulated device: one JSON request or reply on each line.

    -> {"do": "truth"}
    <- {"ok": true, "simulated": true, "lit": [[1, 49]]}
    -> {"do": "sing"}
    <- {"ok": false, "error": "unknown verb 'sing'; this socket knows: advance, truth"}

Tests and demonstrations use the socket to set faults, to advance a virtual clock and to read the true state, which no
protocol of the device reveals. A device supplies a mapping of verbs, and `ControlServer` serves it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sim.twins.wire.listener import Listener

Reply = Mapping[str, Any]
Verb = Callable[["Request"], Reply | Awaitable[Reply]]


class VerbError(Exception):
    """A request that cannot be executed. The client gets the message."""


class Request:
    """One request, with typed access to its fields. If a field is missing or invalid, accessors raise `VerbError`."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def __getitem__(self, name: str) -> Any:
        if name not in self._fields:
            raise VerbError(f"field {name!r} is missing")
        return self._fields[name]

    def get_text(self, name: str) -> str:
        """Return a field that must be a string."""
        value = self[name]
        if not isinstance(value, str):
            raise VerbError(f"field {name!r} must be a string, not {value!r}")
        return value

    def get_number(self, name: str, default: float | None = None) -> float:
        """Return a field that must be a number. If it is absent, return `default`, unless that is None."""
        value = self._fields.get(name, default) if default is not None else self[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise VerbError(f"field {name!r} must be a number, not {value!r}")
        return float(value)

    def get_integer(self, name: str, default: int | None = None) -> int:
        """Return a field that must be an integer. If it is absent, return `default`, unless that is None."""
        value = self._fields.get(name, default) if default is not None else self[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise VerbError(f"field {name!r} must be an integer, not {value!r}")
        return value

    def get_flag(self, name: str, *, default: bool) -> bool:
        """Return a field that must be true or false. If it is absent, return `default`."""
        value = self._fields.get(name, default)
        if not isinstance(value, bool):
            raise VerbError(f"field {name!r} must be true or false, not {value!r}")
        return value

    def get_integers(self, name: str) -> tuple[int, ...]:
        """Return a list of integers, which is empty if the field is absent."""
        value = self._fields.get(name, [])
        if not isinstance(value, list) or not all(type(item) is int for item in value):
            raise VerbError(f"field {name!r} must be a list of integers, not {value!r}")
        return tuple(value)

    def get_pairs(self, name: str) -> tuple[tuple[int, int], ...]:
        """Return a list of pairs of integers, such as `[[1, 49], [2, 50]]`. It is empty if the field is absent."""
        value = self._fields.get(name, [])
        if not isinstance(value, list) or not all(_is_pair(item) for item in value):
            raise VerbError(f"field {name!r} must be a list of pairs [input, output], not {value!r}")
        return tuple((item[0], item[1]) for item in value)

    def get_pair(self, name: str) -> tuple[int, int]:
        """Return a pair of integers, such as `[1, 49]`."""
        value = self[name]
        if not _is_pair(value):
            raise VerbError(f"field {name!r} must be a pair [input, output], not {value!r}")
        return (value[0], value[1])


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(item) is int for item in value)


async def answer_request(verbs: Mapping[str, Verb], line: bytes) -> dict[str, Any]:
    """Execute the request of one line. Return the reply of the verb with `ok` true, or the error with `ok` false."""
    try:
        reply = _call_verb(verbs, line)
        return {"ok": True, **(await reply if inspect.isawaitable(reply) else reply)}
    except VerbError as error:
        return {"ok": False, "error": str(error)}


def _call_verb(verbs: Mapping[str, Verb], line: bytes) -> Reply | Awaitable[Reply]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise VerbError(f"not a line of JSON: {error}") from None
    if not isinstance(fields, dict):
        raise VerbError('a request must be an object such as {"do": "truth"}')
    request = Request(fields)
    name = request.get_text("do")
    if name not in verbs:
        raise VerbError(f"unknown verb {name!r}; this socket knows: {', '.join(sorted(verbs))}")
    return verbs[name](request)


class ControlServer:
    """A server of `verbs` as JSON lines, for any number of clients on one bound socket."""

    def __init__(self, verbs: Mapping[str, Verb]) -> None:
        self._verbs = verbs
        self._listener: Listener | None = None

    async def serve(self, sock: socket.socket) -> None:
        """Start to accept clients on `sock`, and return. The event loop serves the clients."""
        self._listener = Listener(sock, self._serve_client)
        self._listener.open()

    async def close(self) -> None:
        """Break all connections and close the socket."""
        if self._listener:
            await self._listener.close()

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            reply = await answer_request(self._verbs, line)
            writer.write(json.dumps(reply).encode() + b"\n")
            await writer.drain()
