"""Conversion between XML and the JSON documents of a Polatis over RESTCONF. Pure.

Numbers are text in XML; the decoders of `rest_codec` accept this. Invalid XML raises `ProtocolDesync`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

from ocs_drivers.errors import ProtocolDesync

NAMESPACE = "http://www.polatis.com/yang/optical-switch"

_LISTS = frozenset({"pair", "port"})


def encode(document: Mapping[str, Any]) -> bytes:
    """Return a document of one resource as XML.

    >>> encode({"optical-switch:pair": [{"ingress": 1, "egress": 13}]}).decode()
    '<pair xmlns="http://www.polatis.com/yang/optical-switch"><ingress>1</ingress><egress>13</egress></pair>'
    """
    ((name, content),) = document.items()
    (root,) = _make_elements(name.rpartition(":")[2], content)
    root.set("xmlns", NAMESPACE)
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


def decode(body: bytes) -> dict[str, Any]:
    """Return the document of a body.

    Raises `ProtocolDesync` for invalid XML and for a document type, whose entities could expand without limit.

    >>> decode(b"<cross-connects><pair><ingress>1</ingress><egress>13</egress></pair></cross-connects>")
    {'cross-connects': {'pair': [{'ingress': '1', 'egress': '13'}]}}
    >>> decode(b"<cross-connects/>")
    {'cross-connects': {}}
    """
    try:
        text = body.decode()
        if "<!DOCTYPE" in text:
            raise ET.ParseError("it has a document type (<!DOCTYPE), which is not accepted")
        root = ET.fromstring(text)  # noqa: S314 - without a document type there are no entities
    except (ET.ParseError, ValueError, LookupError, RecursionError) as error:
        raise ProtocolDesync(f"the answer is not XML: {error}", received=repr(body[:80])) from None
    return {_get_name(root): _decode_container(root)}


def _decode_container(element: ET.Element) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for child in element:
        if _get_name(child) in _LISTS:
            document.setdefault(_get_name(child), []).append(_decode_container(child))
        else:
            document[_get_name(child)] = (child.text or "").strip()
    return document


def _get_name(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]
