"""The bodies of the switch's RESTCONF, seen from the server: JSON of a client checked, refusals written.

Sources: RFC 8040 (error documents and their tags), RFC 7951 (YANG in JSON), bodies of public clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.twins.frontends.http_server import HttpRefusal, HttpRequest
from sim.twins.switch.matrix import Pair, Reason, Refused

YANG_JSON = "application/yang-data+json"

_STATUS_OF: Mapping[Reason, tuple[int, str]] = {
    Reason.NO_SUCH_PORT: (400, "invalid-value"),
    Reason.WRONG_SIDE: (400, "invalid-value"),
    Reason.REPEATED: (400, "invalid-value"),
    Reason.UNEQUAL: (400, "invalid-value"),
    Reason.NOT_CONNECTED: (404, "invalid-value"),
    Reason.OCCUPIED: (409, "in-use"),
    Reason.DISABLED: (409, "in-use"),
    Reason.LOCKED: (409, "lock-denied"),
    Reason.FAILED: (500, "operation-failed"),
}


def error_document(tag: str, message: str) -> dict[str, Any]:
    """Return the body of a refusal (RFC 8040, section 7.1)."""
    error = {"error-type": "application", "error-tag": tag, "error-message": message}
    return {"ietf-restconf:errors": {"error": [error]}}


def refusal(refused: Refused) -> HttpRefusal:
    """Return the answer to a refused request, as a status and a document.

    >>> refusal(Refused(Reason.OCCUPIED, 9)).status
    409
    """
    status, tag = _STATUS_OF[refused.reason]
    return HttpRefusal(status, error_document(tag, str(refused)))


def body_of(request: HttpRequest, name: str) -> Any:
    """Return the value of `name` in the request's document, with or without the module before it (400 if nothing).

    Lists of one may come bare, as one public client sends them.
    """
    document = request.json()
    for key in (name, name.partition(":")[2]):
        if isinstance(document, dict) and key in document:
            content = document[key]
            alone = name.endswith((":pair", ":port")) and isinstance(content, dict)
            return [content] if alone else content
    raise HttpRefusal(400, error_document("missing-element", f"{name} is missing"))


def pairs_in(content: Any, *, exactly: int | None = None) -> list[Pair]:
    """Return the pairs of a `{"pair": [{"ingress": 1, "egress": 13}]}`; without a list there are none (400 if other).

    >>> pairs_in({"pair": [{"ingress": 1, "egress": 13}]})
    [(1, 13)]
    """
    try:
        entries = content.get("pair", [])
        pairs = [(whole_number(entry["ingress"]), whole_number(entry["egress"])) for entry in entries]
    except (AttributeError, KeyError, TypeError) as error:
        raise HttpRefusal(400, error_document("malformed-message", f"not a list of pairs: {error}")) from None
    if exactly is not None and len(pairs) != exactly:
        raise HttpRefusal(400, error_document("invalid-value", f"{len(pairs)} pairs where {exactly} belongs"))
    return pairs


def only_entry(content: Any) -> Mapping[str, Any]:
    """Return the one object in a list (400 if it is anything else)."""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        return content[0]
    raise HttpRefusal(400, error_document("malformed-message", "not a list of one entry"))


def whole_number(value: Any) -> int:
    """Return a port number, which some clients write as a string (400 if it is none)."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    raise HttpRefusal(400, error_document("invalid-value", f"{value!r} is no port number"))
