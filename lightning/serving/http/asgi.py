"""Plain ASGI: size-limited bodies, replies, and errors as JSON documents of the V2 inference protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from lightning.errors import (
    Busy,
    CompileError,
    DeadlineMissed,
    DeviceError,
    InputError,
    LightningError,
    MalformedRequest,
    ModelFileError,
    NetworkError,
    RequestTooLarge,
    ServingError,
    UnknownModel,
)
from lightning.serving.http.v2 import JSON_LENGTH_HEADER, encode_document

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]
ReserveBytes = Callable[[int], None]

STATUS_BY_ERROR: dict[type[LightningError], int] = {
    UnknownModel: 404,
    MalformedRequest: 400,
    InputError: 400,
    RequestTooLarge: 413,
    Busy: 503,
    DeadlineMissed: 504,
    ModelFileError: 422,
    NetworkError: 422,
    CompileError: 422,
    DeviceError: 503,
    ServingError: 400,
    LightningError: 500,
}
"""HTTP status for each error class and its subclasses."""

JSON_HEADER = (b"content-type", b"application/json")
CLOSE_HEADER = (b"connection", b"close")

BODY_TIMEOUT_S = 60.0
"""Time limit for the arrival of a body, in seconds."""


class ClientDisconnected(Exception):
    """The client disconnected before its request was complete."""

    code = "disconnected"


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP reply: body, status and headers."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = field(default=(JSON_HEADER,))

    async def send(self, send: Send) -> None:
        """Send the reply as two ASGI messages."""
        headers = [*self.headers, (b"content-length", b"%d" % len(self.body))]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def find_status(error: LightningError) -> int:
    """Return the HTTP status of the nearest base class in `STATUS_BY_ERROR`."""
    return next(
        STATUS_BY_ERROR[error_class] for error_class in type(error).__mro__ if error_class in STATUS_BY_ERROR
    )


def make_error_response(error: LightningError, headers: Headers) -> Reply:
    """Return the reply to an error: its JSON document with the error code of this toolkit, and its HTTP status."""
    return make_error_reply(str(error), error.code, find_status(error), headers)


def make_error_reply(message: str, code: str, status: int, headers: Headers = ()) -> Reply:
    """Return an error reply from its message, code and status.

    A client that waits for permission to send a body (`Expect: 100-continue`) does not send it after an error, so the
    connection is closed. For other clients it stays open.
    """
    expects_continue = find_header(headers, b"expect") is not None
    return Reply(
        encode_document({"error": message, "code": code}),
        status,
        (JSON_HEADER, CLOSE_HEADER) if expects_continue else (JSON_HEADER,),
    )


def find_header(headers: Headers, name: bytes) -> bytes | None:
    """Return the value of a header, or None. `name` is in lower case, as in ASGI."""
    for key, value in headers:
        if key == name:
            return value
    return None


def read_json_length(headers: Headers) -> int | None:
    """Return the number of JSON bytes in the body, or None without the header. Raise `MalformedRequest` if invalid."""
    value = find_header(headers, JSON_LENGTH_HEADER)
    if value is None:
        return None
    if not value.isdigit() or len(value) > 18:
        raise MalformedRequest(
            f"Inference-Header-Content-Length is {value[:80]!r}, not a number of bytes",
            hint="Send the length of the JSON in bytes",
        )
    return int(value)


def check_content_length(headers: Headers, limit: int) -> int:
    """Return the announced size of the body, or `limit` if the header is missing.

    Raise `RequestTooLarge` above the limit.
    """
    content_length = find_header(headers, b"content-length")
    if content_length is None:
        return limit
    size = int(content_length)
    if size > limit:
        raise _make_size_error(size, limit)
    return size


async def read_body(
    headers: Headers, receive: Receive, limit: int, reserve_bytes: ReserveBytes = lambda _: None
) -> bytes:
    """Read the whole body.

    Call `reserve_bytes` with the size of each part that arrives. It may raise an error to refuse the part. Raise
    `RequestTooLarge` after more than `limit` bytes, `DeadlineMissed` after `BODY_TIMEOUT_S`, `ClientDisconnected` if
    the client leaves, or `MalformedRequest` for a compressed body.
    """
    if find_header(headers, b"content-encoding") is not None:
        raise MalformedRequest("compressed bodies are not supported", hint="Send the body uncompressed")
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        if len(body) > limit:
            raise _make_size_error(len(body), limit)
        reserve_bytes(len(body))
        return body
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await _read_remaining(message, receive, limit, reserve_bytes)
    except TimeoutError as error:
        raise DeadlineMissed(
            f"the body of the request did not arrive within {BODY_TIMEOUT_S:g} s",
            hint="Send smaller requests, or faster",
        ) from error


async def _read_remaining(
    message: Message, receive: Receive, limit: int, reserve_bytes: ReserveBytes
) -> bytes:
    parts, size = [], 0
    while True:
        if message["type"] != "http.request":
            raise ClientDisconnected
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise _make_size_error(size, limit)
        reserve_bytes(len(parts[-1]))
        if not message.get("more_body"):
            return b"".join(parts)
        message = await receive()


def _make_size_error(size: int, limit: int) -> RequestTooLarge:
    return RequestTooLarge(
        f"the request has {size} bytes or more; the limit is {limit}",
        hint="Send smaller batches, or start the server with a larger --max-body",
    )
