"""Server-side RESTCONF syntax of a Polatis switch: JSON and XML bodies, their validation, and error documents.

Sources: RFC 8040 (media types, error documents and error tags), RFC 7951 (YANG in JSON), RFC 7950 (YANG in XML), and
requests of public clients, which omit the namespace.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from xml.etree import ElementTree as ET

from sim.twins.frontends.http_server import HttpAnswer, HttpRefusal, HttpRequest
from sim.twins.switch.matrix import MatrixRefusal, Pair, Reason

Media = Literal["json", "xml"]

YANG_JSON = "application/yang-data+json"
YANG_XML = "application/yang-data+xml"

_CONTENT_TYPES: Mapping[Media, str] = {"json": YANG_JSON, "xml": YANG_XML}
_BODY_MEDIA: Mapping[str, Media] = {YANG_JSON: "json", YANG_XML: "xml"}
_ANSWER_MEDIA: Mapping[str, Media] = {
    **_BODY_MEDIA,
    "application/json": "json",
    "application/xml": "xml",
    "text/xml": "xml",
}

_STATUS_BY_REASON: Mapping[Reason, tuple[int, str]] = {
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
_LIST_ELEMENTS = frozenset({"pair", "port", "error"})
"""XML elements that are list entries. `parse_xml` makes a list even of a single entry."""


# -- media


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer before encoding. Without a document, the answer has no body."""

    status: int
    document: Mapping[str, Any] | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def answer(self, media: Media) -> HttpAnswer:
        """Return the encoded answer. A bare list in XML must have one entry; otherwise return status 400 (RFC 8040)."""
        if self.document is None:
            return HttpAnswer(self.status, headers=self.headers)
        if media == "xml" and any(
            isinstance(value, list) and len(value) != 1 for value in self.document.values()
        ):
            return Reply(
                400, make_error_document("invalid-value", "XML holds one entry, or their container")
            ).answer(media)
        body = format_xml(self.document) if media == "xml" else json.dumps(self.document).encode()
        return HttpAnswer(self.status, body, (("Content-Type", _CONTENT_TYPES[media]), *self.headers))


def choose_media(request: HttpRequest, default_media: Media) -> Media:
    """Return the format of the answer (RFC 8040, 5.2): from `Accept`, else from the request body, else the default.

    Raise `HttpRefusal` (406) if the client accepts neither format.
    """
    accept_types = [
        part.partition(";")[0].strip() for part in request.headers.get("accept", "*/*").split(",")
    ]
    for media_type in accept_types:
        if media_type in _ANSWER_MEDIA:
            return _ANSWER_MEDIA[media_type]
    if not {"*/*", "*", "application/*"}.intersection(accept_types):
        raise HttpRefusal(406, f"answers are {YANG_JSON} or {YANG_XML}")
    return _BODY_MEDIA.get(_read_content_type(request), default_media)


def _read_content_type(request: HttpRequest) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def parse_body(request: HttpRequest) -> Any:
    """Return the document of a request in JSON or XML. Without a `Content-Type`, detect the format.

    One public client sends XML without a type, and a real unit accepts it. Raise `HttpRefusal`: 415 for another type,
    400 for an invalid body.
    """
    media_type = _read_content_type(request)
    if media_type and media_type not in _BODY_MEDIA:
        raise HttpRefusal(
            415, make_error_document("invalid-value", f"send {YANG_JSON} or {YANG_XML}, not {media_type}")
        )
    looks_like_xml = request.body.lstrip().startswith(b"<")
    if _BODY_MEDIA.get(media_type, "xml" if looks_like_xml else "json") == "xml":
        return parse_xml(request.body)
    return request.parse_json()


# -- refusals


def make_error_document(tag: str, message: str) -> dict[str, Any]:
    """Return the document of an error (RFC 8040, section 7.1)."""
    error = {"error-type": "application", "error-tag": tag, "error-message": message}
    return {"ietf-restconf:errors": {"error": [error]}}


def make_refusal(refusal: MatrixRefusal) -> HttpRefusal:
    """Return the HTTP refusal for a request that the switch refuses.

    >>> make_refusal(MatrixRefusal(Reason.OCCUPIED, 9)).status
    409
    """
    status, tag = _STATUS_BY_REASON[refusal.reason]
    return HttpRefusal(status, make_error_document(tag, str(refusal)))


# -- contents


def read_body(request: HttpRequest, *names: str) -> Any:
    """Return the value of the first of `names` that a request's document contains. The module prefix is optional.

    A list entry becomes a list, because public clients send a bare object instead. A container becomes an object, which
    may be empty. Raise `HttpRefusal` (400) if the document contains none of `names`, or the value is malformed.
    """
    document = parse_body(request)
    for name in names:
        for key in (name, name.partition(":")[2]):
            if isinstance(document, dict) and key in document:
                return _check_content(document[key], is_entry=name.endswith((":pair", ":port")))
    raise HttpRefusal(400, make_error_document("missing-element", f"{names[0]} is missing"))


def _check_content(value: Any, *, is_entry: bool) -> Any:
    if is_entry:
        return [value] if isinstance(value, dict) else value
    if value != "" and not isinstance(value, dict):
        raise HttpRefusal(400, make_error_document("malformed-message", "not a container"))
    return value or {}


def parse_entries(content: Any, name: str) -> list[Mapping[str, Any]]:
    """Return the entries of a list, bare or in its container. Raise `HttpRefusal` (400) if it is not a list of objects.

    >>> (
    ...     parse_entries({"port": [{"port-id": 9}]}, "port"),
    ...     parse_entries([{"port-id": 9}], "port"),
    ...     parse_entries({}, "port"),
    ... )
    ([{'port-id': 9}], [{'port-id': 9}], [])
    """
    entries = content.get(name, []) if isinstance(content, dict) else content
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise HttpRefusal(400, make_error_document("malformed-message", f"not a list of {name}"))
    return entries


def parse_pairs(content: Any, *, expected_count: int | None = None) -> list[Pair]:
    """Return the pairs of a bare list or of a container, which may be empty. Raise `HttpRefusal` (400) if malformed.

    >>> parse_pairs({"pair": [{"ingress": 1, "egress": 13}]})
    [(1, 13)]
    """
    try:
        entries = parse_entries(content, "pair")
        pairs = [(parse_number(entry["ingress"]), parse_number(entry["egress"])) for entry in entries]
    except KeyError as error:
        raise HttpRefusal(
            400, make_error_document("malformed-message", f"not a list of pairs: {error}")
        ) from None
    if expected_count is not None and len(pairs) != expected_count:
        raise HttpRefusal(
            400, make_error_document("invalid-value", f"{len(pairs)} pairs where {expected_count} belongs")
        )
    return pairs


def get_single_entry(content: Any) -> Mapping[str, Any]:
    """Return the object in a list of one object. Raise `HttpRefusal` (400) for any other content."""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        return content[0]
    raise HttpRefusal(400, make_error_document("malformed-message", "not a list of one entry"))


def parse_number(value: Any) -> int:
    """Return a port number. Some clients send it as a string. Raise `HttpRefusal` (400) if it is not a number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value):
        return int(value)
    raise HttpRefusal(400, make_error_document("invalid-value", f"{value!r} is no port number"))


def parse_xml(body: bytes) -> dict[str, Any]:
    """Return an XML body as the equivalent JSON document, except that all leaves are text.

    >>> parse_xml(b"<pair><ingress>1</ingress><egress>13</egress></pair>")
    {'pair': [{'ingress': '1', 'egress': '13'}]}

    Raise `HttpRefusal` (400) for invalid XML. Also reject document types, because their entities could expand without
    limit.
    """
    try:
        text = body.decode()
        if "<!" in text:
            raise ET.ParseError("document types and comments are not supported")
        root = ET.fromstring(text)  # noqa: S314 - without a document type there are no entities
    except (ET.ParseError, ValueError, LookupError) as error:
        raise HttpRefusal(400, f"not XML: {error}") from None
    name = _get_local_name(root)
    return {name: [_parse_element(root)] if name in _LIST_ELEMENTS else _parse_element(root)}


def _parse_element(element: ET.Element) -> Any:
    if not len(element):
        return (element.text or "").strip()
    children: dict[str, Any] = {}
    for child in element:
        name = _get_local_name(child)
        if name in _LIST_ELEMENTS:
            children.setdefault(name, []).append(_parse_element(child))
        else:
            children[name] = _parse_element(child)
    return children


def _get_local_name(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def format_xml(document: Mapping[str, Any]) -> bytes:
    """Return a document as XML. The document has one resource, whose name has a module prefix.

    >>> format_xml({"optical-switch:pair": {"ingress": 1, "egress": 13}}).decode()
    '<pair xmlns="http://www.polatis.com/yang/optical-switch"><ingress>1</ingress><egress>13</egress></pair>'
    """
    ((qualified_name, content),) = document.items()
    module, _, name = qualified_name.partition(":")
    (root,) = _make_elements(name, content)
    root.set("xmlns", _NAMESPACES[module])
    return ET.tostring(root)


def _make_elements(name: str, content: Any) -> list[ET.Element]:
    if isinstance(content, list):
        return [element for entry in content for element in _make_elements(name, entry)]
    element = ET.Element(name)
    if isinstance(content, Mapping):
        for key, value in content.items():
            element.extend(_make_elements(key, value))
    else:
        element.text = str(content)
    return [element]
