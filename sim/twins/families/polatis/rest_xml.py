"""XML of the switch's RESTCONF, seen from the server: bodies of a client read, answers written.

Sources: RFC 7950 (YANG in XML), RFC 8040 (errors), bodies of public clients, which leave the namespace out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

from sim.twins.frontends.http_server import HttpRefusal

_NAMESPACES = {
    "optical-switch": "http://www.polatis.com/yang/optical-switch",
    "ietf-restconf": "urn:ietf:params:xml:ns:yang:ietf-restconf",
}
_LISTS = frozenset({"pair", "port", "error"})
"""Elements that stand for entries of a list, of which there may be one."""


def document_of(body: bytes) -> dict[str, Any]:
    """Return the document that a body in XML stands for, as JSON would have it but for its leaves, which are text.

    >>> document_of(b"<pair><ingress>1</ingress><egress>13</egress></pair>")
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
