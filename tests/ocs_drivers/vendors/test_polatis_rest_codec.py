"""The documents of a Polatis over RESTCONF, as public clients show them, and any others."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocs_drivers import CrossConnects
from ocs_drivers.errors import (
    ProtocolDesync,
)
from ocs_drivers.model import Attenuation, PortState
from ocs_drivers.protocols.http import HttpReply
from ocs_drivers.vendors.polatis import rest_codec

pytestmark = pytest.mark.codec

PAIRS = "/api/data/optical-switch:cross-connects"


def test_the_golden_documents_are_ours():
    body = json.loads('{"optical-switch:cross-connects":{"pair":[{"ingress":1,"egress":13}]}}')
    assert rest_codec.encode_pairs(CrossConnects({1: 13})) == body
    assert rest_codec.decode_pairs(body) == CrossConnects({1: 13})
    assert rest_codec.CROSS_CONNECTS == PAIRS
    assert rest_codec.format_pair_path(1) == f"{PAIRS}/pair=1"


def test_single_resources_and_their_documents():
    assert rest_codec.encode_pair(1, 13) == {"optical-switch:pair": [{"ingress": 1, "egress": 13}]}
    assert rest_codec.format_port_path(2) == "/api/data/optical-switch:port-config/port=2"
    (opened,) = rest_codec.encode_port(2, is_open=True, label="x")["optical-switch:port"]
    (closed,) = rest_codec.encode_port(2, is_open=False, label="x")["optical-switch:port"]
    assert (opened["status"], closed["status"]) == ("ENABLED", "DISABLED")
    assert opened == {"port-id": 2, "status": "ENABLED", "label": "x"}


def reply(body: bytes, kind: str) -> HttpReply:
    return HttpReply(200, body, {"content-type": kind})


def test_a_document_is_decoded_as_its_type_says():
    """XML with and without a namespace, as clients show both; leaves are text."""
    for opening in (
        "<cross-connects>",
        '<cross-connects xmlns="http://www.polatis.com/yang/optical-switch">',
    ):
        body = f"{opening}<pair><ingress>1</ingress><egress>13</egress></pair></cross-connects>".encode()
        document = rest_codec.decode_document(reply(body, "application/yang-data+xml; charset=utf-8"))
        assert rest_codec.decode_pairs(document) == CrossConnects({1: 13})
    golden = b'{"optical-switch:cross-connects":{"pair":[{"ingress":1,"egress":13}]}}'
    document = rest_codec.decode_document(reply(golden, "application/yang-data+json"))
    assert rest_codec.encode_document(document, "json") == golden
    assert rest_codec.encode_document(rest_codec.encode_pair(1, 13), "xml").endswith(
        b"<ingress>1</ingress><egress>13</egress></pair>"
    )


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"<pair>", b"\xff<pair/>", b'<!DOCTYPE p [<!ENTITY a "1">]><pair>&a;</pair>'],
)
def test_what_is_not_xml_is_a_desync(body):
    with pytest.raises(ProtocolDesync, match="not XML"):
        rest_codec.decode_document(reply(body, "text/xml"))


def test_attenuators_are_read_and_written():
    found = rest_codec.decode_attenuators(
        {
            "voa": {
                "port": [
                    {"port-id": "9", "atten-mode": "VOA_MODE_ABSOLUTE", "atten-level": "-10.00"},
                    {"port-id": 10, "atten-mode": "VOA_MODE_FIXED"},
                    rest_codec.encode_attenuation(11, Attenuation("relative", -3.0, 2))["optical-switch:voa"][
                        "port"
                    ][0],
                ]
            }
        }
    )
    assert found == {9: Attenuation("absolute", -10.0), 10: None, 11: Attenuation("relative", -3.0, 2)}
    for wrong in ({"port-id": 9, "atten-mode": "VOA_MODE_ABSOLUTE"}, {"atten-mode": "VOA_MODE_NONE"}):
        with pytest.raises(ProtocolDesync):
            rest_codec.decode_attenuators({"voa": {"port": [wrong]}})


def test_ports_powers_and_product_are_read():
    port = {"port-id": 2, "status": "DISABLED", "label": "rack 4", "peer-port": 13}
    found = rest_codec.decode_ports({"optical-switch:port-config": {"port": [port]}})
    assert found == {2: rest_codec.RestPort(PortState.DISABLED, "rack 4")}
    readings = [{"port-id": 1, "power": "-29.55"}, {"port-id": 2, "power": -3.0}, {"port-id": 3}]
    powers = rest_codec.decode_powers({"optical-switch:opm-power": {"port": readings}})
    assert powers == {1: -29.55, 2: -3.0, 3: None}


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"optical-switch:cross-connects": []},
        {"optical-switch:cross-connects": {"pair": {"ingress": 1}}},
        {"optical-switch:cross-connects": {"pair": [{"ingress": 1}]}},
        {"optical-switch:cross-connects": {"pair": [{"ingress": True, "egress": 2}]}},
        {
            "optical-switch:cross-connects": {
                "pair": [{"ingress": 1, "egress": 9}, {"ingress": 2, "egress": 9}]
            }
        },
    ],
)
def test_what_is_no_configuration_is_a_desync(document):
    with pytest.raises(ProtocolDesync):
        rest_codec.decode_pairs(document)


@pytest.mark.parametrize("port", [{}, {"port-id": "two"}, {"port-id": 2, "status": "ASLEEP"}])
def test_what_is_no_port_is_a_desync(port):
    with pytest.raises(ProtocolDesync):
        rest_codec.decode_ports({"optical-switch:port-config": {"port": [port]}})


@pytest.mark.parametrize("product", [None, [], {"manufacturer": "Polatis"}])
def test_what_is_no_product_is_a_desync(product):
    with pytest.raises(ProtocolDesync):
        rest_codec.decode_product({"optical-switch:product-information": product})


@pytest.mark.parametrize("power", ["high", [1], {}])
def test_what_is_no_power_is_a_desync(power):
    with pytest.raises(ProtocolDesync):
        rest_codec.decode_powers({"optical-switch:opm-power": {"port": [{"port-id": 1, "power": power}]}})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["ENABLED", "-3.1", "7", ""]),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(
            st.sampled_from(["ingress", "egress", "port-id", "status", "power", "label", "pair", "port"]),
            inside,
        )
    ),
    max_leaves=8,
)


@pytest.mark.slow
def test_any_document_is_decoded_or_a_desync():
    met: Counter[str] = Counter()
    entry = st.fixed_dictionaries({"ingress": json_values, "egress": json_values}) | json_values
    port = st.fixed_dictionaries(
        {"port-id": st.integers(1, 9)}, optional={"status": json_values, "power": json_values}
    )
    content = st.fixed_dictionaries({"pair": st.lists(entry, max_size=3)}) | st.fixed_dictionaries(
        {"port": st.lists(port, max_size=3)}
    )

    @given(
        st.sampled_from([rest_codec.decode_pairs, rest_codec.decode_ports, rest_codec.decode_powers]),
        st.one_of(content, json_values),
        st.sampled_from(["cross-connects", "port-config", "opm-power"]),
    )
    @settings(max_examples=300)
    def decode(decoder: Any, inside: Any, name: str) -> None:
        try:
            decoder({f"optical-switch:{name}": inside})
        except ProtocolDesync:
            met["desync"] += 1
        else:
            met["decoded"] += 1

    decode()
    assert met["desync"] >= 20
    assert met["decoded"] >= 20


@pytest.mark.slow
def test_any_bytes_are_a_document_in_xml_or_a_desync():
    met: Counter[str] = Counter()
    pieces = st.sampled_from(
        b"<pair>|</pair>|<ingress>1</ingress>|<egress>13</egress>|<egress/>|<!DOCTYPE a>|&a;|\xff| |x".split(
            b"|"
        )
    )
    inside = st.one_of(
        st.just(b"<ingress>1</ingress><egress>13</egress>"), st.lists(pieces, max_size=3).map(b"".join)
    )
    likely = inside.map(lambda found: b"<cross-connects><pair>" + found + b"</pair></cross-connects>")

    @given(st.one_of(likely, likely, st.binary(max_size=30)))
    @settings(max_examples=200, deadline=None)
    def decode(body: bytes) -> None:
        try:
            document = rest_codec.decode_document(reply(body, "application/yang-data+xml"))
            met["XML"] += 1
            rest_codec.decode_pairs(document)
            met["pairs"] += 1
        except ProtocolDesync:
            met["desync"] += 1

    decode()
    assert met["XML"] > 10, met
    assert met["pairs"] > 1, met
    assert met["desync"] > 10, met


@pytest.mark.parametrize(
    ("setting", "keys"),
    [
        (Attenuation("none"), {"port-id", "atten-mode"}),
        (Attenuation("absolute", -10.0), {"port-id", "atten-mode", "atten-level"}),
        (Attenuation("relative", -3.0, 2), {"port-id", "atten-mode", "atten-level", "reference-port"}),
    ],
)
def test_a_setting_of_an_attenuator_names_what_it_has(setting, keys):
    (entry,) = rest_codec.encode_attenuation(9, setting)["optical-switch:voa"]["port"]
    assert entry.keys() == keys
