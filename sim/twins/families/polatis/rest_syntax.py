"""The bodies of the switch's RESTCONF, seen from the server: JSON and XML, documents of a client checked, refusals.

Sources: RFC 8040 (media types; error documents and their tags), RFC 7951 (YANG in JSON), RFC 7950 (YANG in XML), bodies
of public clients, which leave the namespace out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from xml.etree import ElementTree as ET

from sim.twins.frontends.http_server import HttpAnswer, HttpRefusal, HttpRequest
from sim.twins.switch.matrix import Pair, Reason, Refused

Media = Literal["json", "xml"]

YANG_JSON = "application/yang-data+json"
YANG_XML = "application/yang-data+xml"

_TYPES: Mapping[Media, str] = {"json": YANG_JSON, "xml": YANG_XML}
_MEDIA_OF_BODY: Mapping[str, Media] = {YANG_JSON: "json", YANG_XML: "xml"}
_MEDIA_OF_ANSWER: Mapping[str, Media] = {
    **_MEDIA_OF_BODY,
    "application/json": "json",
    "application/xml": "xml",
    "text/xml": "xml",
}

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
_NAMESPACES = {
    "optical-switch": "http://www.polatis.com/yang/optical-switch",
    "ietf-restconf": "urn:ietf:params:xml:ns:yang:ietf-restconf",
}
_LISTS = frozenset({"pair", "port", "error"})
"""Elements that stand for entries of a list, of which there may be one."""


# -- media


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer before it is written in a medium; without a document it has no body."""

    status: int
    document: Mapping[str, Any] | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def answer(self, media: Media) -> HttpAnswer:
        """Return the answer in JSON or XML. XML has one root, so several entries without one are refused (RFC 8040)."""
        if self.document is None:
            return HttpAnswer(self.status, headers=self.headers)
        if media == "xml" and any(
            isinstance(value, list) and len(value) != 1 for value in self.document.values()
        ):
            return Reply(
                400, error_document("invalid-value", "XML holds one entry, or their container")
            ).answer(media)
        body = xml_of(self.document) if media == "xml" else json.dumps(self.document).encode()
        return HttpAnswer(self.status, body, (("Content-Type", _TYPES[media]), *self.headers))


def media_of_answer(request: HttpRequest, default: Media) -> Media:
    """Return the medium to answer in: what the client accepts, else what it sends, else the default (RFC 8040, 5.2).

    Raises `HttpRefusal` (406) for a client that accepts neither.
    """
    accepted = [part.partition(";")[0].strip() for part in request.headers.get("accept", "*/*").split(",")]
    for kind in accepted:
        if kind in _MEDIA_OF_ANSWER:
            return _MEDIA_OF_ANSWER[kind]
    if not {"*/*", "*", "application/*"}.intersection(accepted):
        raise HttpRefusal(406, f"answers are {YANG_JSON} or {YANG_XML}")
    return _MEDIA_OF_BODY.get(_content_type(request), default)


def _content_type(request: HttpRequest) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def request_document(request: HttpRequest) -> Any:
    """Return the document of a request, in JSON or XML: as its type says, else as it looks.

    One public client sends XML without a type, and a unit takes it. Raises `HttpRefusal`, 415 for any other type.
    """
    kind = _content_type(request)
    if kind and kind not in _MEDIA_OF_BODY:
        raise HttpRefusal(415, error_document("invalid-value", f"send {YANG_JSON} or {YANG_XML}, not {kind}"))
    looks_like_xml = request.body.lstrip().startswith(b"<")
    if _MEDIA_OF_BODY.get(kind, "xml" if looks_like_xml else "json") == "xml":
        return xml_document(request.body)
    return request.json()


# -- refusals


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


# -- contents


def body_of(request: HttpRequest, *names: str) -> Any:
    """Return the value of one of `names` in the request's document, with or without the module before it (400 if none).

    Entries come as a list; one may come bare, as public clients send it. A container comes as an object, or empty.
    """
    document = request_document(request)
    for name in names:
        for key in (name, name.partition(":")[2]):
            if isinstance(document, dict) and key in document:
                return _content(document[key], is_entry=name.endswith((":pair", ":port")))
    raise HttpRefusal(400, error_document("missing-element", f"{names[0]} is missing"))


def _content(value: Any, *, is_entry: bool) -> Any:
    if is_entry:
        return [value] if isinstance(value, dict) else value
    if value != "" and not isinstance(value, dict):
        raise HttpRefusal(400, error_document("malformed-message", "not a container"))
    return value or {}


def entries_in(content: Any, name: str) -> list[Mapping[str, Any]]:
    """Return the entries of a list, which comes bare or in its container (400 if it is none).

    >>> (
    ...     entries_in({"port": [{"port-id": 9}]}, "port"),
    ...     entries_in([{"port-id": 9}], "port"),
    ...     entries_in({}, "port"),
    ... )
    ([{'port-id': 9}], [{'port-id': 9}], [])
    """
    entries = content.get(name, []) if isinstance(content, dict) else content
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise HttpRefusal(400, error_document("malformed-message", f"not a list of {name}"))
    return entries


def pairs_in(content: Any, *, exactly: int | None = None) -> list[Pair]:
    """Return the pairs of a `{"pair": [{"ingress": 1, "egress": 13}]}`; without a list there are none (400 if other).

    >>> pairs_in({"pair": [{"ingress": 1, "egress": 13}]})
    [(1, 13)]
    """
    try:
        entries = entries_in(content, "pair")
        pairs = [(whole_number(entry["ingress"]), whole_number(entry["egress"])) for entry in entries]
    except KeyError as error:
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
    if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value):
        return int(value)
    raise HttpRefusal(400, error_document("invalid-value", f"{value!r} is no port number"))


def xml_document(body: bytes) -> dict[str, Any]:
    """Return the document that a body in XML stands for, as JSON would have it but for its leaves, which are text.

    >>> xml_document(b"<pair><ingress>1</ingress><egress>13</egress></pair>")
    {'pair': [{'ingress': '1', 'egress': '13'}]}

    Raises `HttpRefusal` (400), also for a document type, whose entities could grow without end.
    """
    try:
        text = body.decode()
        if "<!" in text:
            raise ET.ParseError("a document type or a comment is not taken")
        root = ET.fromstring(text)  # noqa: S314 - without a document type there are no entities
    except (ET.ParseError, ValueError, LookupError) as error:
        raise HttpRefusal(400, f"not XML: {error}") from None
    name = _name(root)
    return {name: [_value(root)] if name in _LISTS else _value(root)}


def _value(element: ET.Element) -> Any:
    if not len(element):
        return (element.text or "").strip()
    found: dict[str, Any] = {}
    for child in element:
        name = _name(child)
        if name in _LISTS:
            found.setdefault(name, []).append(_value(child))
        else:
            found[name] = _value(child)
    return found


def _name(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def xml_of(document: Mapping[str, Any]) -> bytes:
    """Return a document of one resource as XML; its name has the module before it.

    >>> xml_of({"optical-switch:pair": {"ingress": 1, "egress": 13}}).decode()
    '<pair xmlns="http://www.polatis.com/yang/optical-switch"><ingress>1</ingress><egress>13</egress></pair>'
    """
    ((qualified, content),) = document.items()
    module, _, name = qualified.partition(":")
    (root,) = _elements(name, content)
    root.set("xmlns", _NAMESPACES[module])
    return ET.tostring(root)


def _elements(name: str, content: Any) -> list[ET.Element]:
    if isinstance(content, list):
        return [element for entry in content for element in _elements(name, entry)]
    element = ET.Element(name)
    if isinstance(content, Mapping):
        for key, value in content.items():
            element.extend(_elements(key, value))
    else:
        element.text = str(content)
    return [element]
