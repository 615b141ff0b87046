"""A session in RESTCONF: documents in JSON or XML over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from ocs_drivers.contract import Guard
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import DeviceError
from ocs_drivers.protocols.http import HttpReply
from ocs_drivers.protocols.http_session import HttpSession
from ocs_drivers.timing import Clock
from ocs_drivers.transports.transport import Transport
from ocs_drivers.vendors.polatis import rest_codec

_T = TypeVar("_T")

_NOTHING = 204
_NO_EQUIPMENT = {"204", "404"}


class RestconfSession(HttpSession):
    """Documents asked for and sent in one medium; an answer is understood in the one that it names."""

    def __init__(
        self,
        transport: Transport,
        *,
        device: str,
        credentials: Credentials,
        timeout_s: float,
        media: rest_codec.Media,
        clock: Clock,
    ) -> None:
        super().__init__(transport, device=device, credentials=credentials, timeout_s=timeout_s, clock=clock)
        self._media: rest_codec.Media = media

    def get_document(self, target: str, decode: Callable[[Any], _T]) -> _T:
        """Return what is at `target`, decoded. Raises `DeviceError` where there is nothing."""
        return self.get(
            target,
            lambda reply: decode(rest_codec.decode_document(reply)),
            accept=rest_codec.TYPES[self._media],
        )

    def get_with_tag(self, target: str, decode: Callable[[Any], _T], nothing: _T) -> tuple[_T, str]:
        """Return what is at `target` and the tag that the device gives it; `nothing` where that is the answer (204)."""

        def read(reply: HttpReply) -> tuple[_T, str]:
            tag = reply.headers.get("etag", "")
            if reply.status == _NOTHING:
                return nothing, tag
            return decode(rest_codec.decode_document(reply)), tag

        return self.get(target, read, accept=rest_codec.TYPES[self._media], statuses=(200, _NOTHING))

    def ports_at(self, target: str, decode: Callable[[Any], Collection[int]]) -> frozenset[int]:
        """Return the ports that a resource lists; none where the switch answers that it has no such equipment.

        Raises `DeviceError` for every other refusal.
        """
        try:
            return frozenset(self.get_document(target, decode))
        except DeviceError as refusal:
            if refusal.device_code not in _NO_EQUIPMENT:
                raise
            return frozenset()

    def send_document(
        self,
        method: str,
        target: str,
        document: Mapping[str, Any] | None,
        guard: Guard,
        timeout_s: float,
        *,
        tag: str = "",
    ) -> HttpReply:
        """Send a change, with a document or without, if what is there still has this tag; once."""
        media_type = rest_codec.TYPES[self._media]
        headers = [("Accept", media_type), *([("If-Match", tag)] if tag else [])]
        body = None
        if document is not None:
            body = rest_codec.encode_document(document, self._media)
            headers = [("Content-Type", media_type), *headers]
        return self.request(
            method, target, body, headers, is_read=False, timeout_s=timeout_s, before_resending=guard
        )
