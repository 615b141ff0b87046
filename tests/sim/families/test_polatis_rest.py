"""The simulated switch's RESTCONF, by raw bytes: what public clients send and read, and what may go wrong."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from libraries import skip_without

skip_without("h11")

PAIRS = "/api/data/optical-switch:cross-connects"
PORTS = "/api/data/optical-switch:port-config"
TYPE = "application/yang-data+json"


class Raw:
    """A client that knows nothing but bytes."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self.client = world.attach("rest")

    def ask(
        self, method: str, target: str, document: Any = None, *headers: str
    ) -> tuple[int, dict[str, str], Any]:
        """Ask with a document in JSON, and for one; without a content type, unless a header names it."""
        body = b"" if document is None else json.dumps(document).encode()
        accept = () if any(header.startswith("Accept:") for header in headers) else (f"Accept: {TYPE}",)
        return self.send(method, target, body, *accept, *headers)

    def send(
        self, method: str, target: str, body: bytes = b"", *headers: str
    ) -> tuple[int, dict[str, str], Any]:
        """Send these bytes under these headers alone; the answer comes within a second."""
        head = [
            f"{method} {target} HTTP/1.1",
            "Host: switch",
            f"Authorization: Basic {b64encode(b'admin:root').decode()}",
            f"Content-Length: {len(body)}",
            *headers,
        ]
        self.client.send("\r\n".join([*head, "", ""]).encode() + body)
        self._world.advance(1.0)
        return parse(self.client.receive())


def parse(data: bytes) -> tuple[int, dict[str, str], Any]:
    head, _, body = data.decode().partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert len(body) == int(headers.get("content-length", "0"))
    return int(status.split()[1]), headers, json.loads(body) if body.startswith("{") else body


def one(source: int, output: int) -> dict[str, Any]:
    """Return a pair as its own resource shows it."""
    return {"optical-switch:pair": {"ingress": source, "egress": output}}


def pair(source: int, output: int) -> dict[str, Any]:
    return {"optical-switch:pair": [{"ingress": source, "egress": output}]}


def whole(*pairs: tuple[int, int]) -> dict[str, Any]:
    return {PAIRS.rpartition("/")[2]: {"pair": [{"ingress": i, "egress": o} for i, o in pairs]}}


@pytest.fixture
def switch(world):
    return world("polatis", size=(12, 12))


@pytest.fixture
def rest(switch) -> Raw:
    return Raw(switch)


def error_tag(document: Any) -> str:
    return document["ietf-restconf:errors"]["error"][0]["error-tag"]


def test_the_collection_is_put_and_read_as_public_clients_do(rest, switch):
    golden = json.loads('{"optical-switch:cross-connects":{"pair":[{"ingress":1,"egress":13}]}}')
    assert rest.ask("PUT", PAIRS, golden, f"Content-Type: {TYPE}")[0] == 204
    status, headers, document = rest.ask("GET", PAIRS)
    assert (status, headers["content-type"], document) == (200, TYPE, golden)
    assert re.fullmatch(r"\d+-\d+-\d+", headers["etag"])  # without quotes, as in a capture
    assert switch.truth() == {1: 13}


def test_a_pair_is_created_then_replaced_then_deleted(rest, switch):
    assert rest.ask("PUT", f"{PAIRS}/pair=1", pair(1, 13))[0] == 201
    assert rest.ask("PUT", f"{PAIRS}/pair=1", pair(1, 14))[0] == 204
    assert rest.ask("GET", f"{PAIRS}/pair=1")[2] == one(1, 14)
    assert rest.ask("DELETE", f"{PAIRS}/pair=1")[0] == 204
    assert rest.ask("GET", f"{PAIRS}/pair=1")[0] == 204
    assert rest.ask("DELETE", f"{PAIRS}/pair=1")[0] == 404
    assert switch.truth() == {}


def test_a_pair_can_be_deleted_by_both_ends(rest, switch):
    rest.ask("PUT", PAIRS, whole((1, 13), (2, 14)))
    assert rest.ask("DELETE", f"{PAIRS}/pair=1,14")[0] == 404
    assert rest.ask("DELETE", f"{PAIRS}/pair=1,13")[0] == 204
    assert switch.truth() == {2: 14}


def test_post_creates_and_refuses_what_exists(rest, switch):
    assert rest.ask("POST", PAIRS, pair(1, 13))[0] == 201
    status, _, document = rest.ask("POST", PAIRS, pair(1, 14))
    assert (status, error_tag(document)) == (409, "data-exists")
    switch.advance(3600)
    assert switch.truth() == {1: 13}


def test_on_one_labs_unit_posted_pairs_vanish_and_put_ones_stay(world):
    switch = world("polatis", size=(12, 12), post_vanishes_s="5")
    rest = Raw(switch)
    rest.ask("POST", PAIRS, pair(1, 13))
    rest.ask("PUT", f"{PAIRS}/pair=2", pair(2, 14))
    switch.advance(2.5)
    assert switch.truth() == {1: 13, 2: 14}
    switch.advance(1.0)
    assert switch.truth() == {2: 14}


def test_a_pair_put_in_place_of_a_posted_one_stays(world):
    switch = world("polatis", size=(12, 12), post_vanishes_s="5")
    rest = Raw(switch)
    rest.ask("POST", PAIRS, pair(1, 13))
    rest.ask("PUT", f"{PAIRS}/pair=1", pair(1, 14))
    switch.advance(60)
    assert switch.truth() == {1: 14}


def test_the_tag_changes_with_every_change_by_anybody(rest, switch):
    tags = [rest.ask("GET", PAIRS)[1]["etag"]]
    for change in (
        lambda: rest.ask("PUT", PAIRS, whole((1, 13))),
        lambda: switch.do("operator", connect=[[2, 14]]),
        lambda: switch.do("operator", disconnect=[2]),  # as before: still another tag
        lambda: switch.do("power_cycle", off_s=0.0),
    ):
        change()
        tags.append(rest_again(switch).ask("GET", PAIRS)[1]["etag"])
    assert len(set(tags)) == 5


def rest_again(switch: Any) -> Raw:
    return Raw(switch)


def test_a_request_with_an_old_tag_is_not_done(rest, switch):
    old = rest.ask("GET", PAIRS)[1]["etag"]
    new = rest.ask("PUT", PAIRS, whole((1, 13)), f"If-Match: {old}")[1]["etag"]
    assert new != old
    for method, target, document in (
        ("PUT", PAIRS, whole()),
        ("PUT", f"{PAIRS}/pair=2", pair(2, 14)),
        ("POST", PAIRS, pair(2, 14)),
        ("DELETE", f"{PAIRS}/pair=1", None),
    ):
        assert rest.ask(method, target, document, f"If-Match: {old}")[0] == 412
    assert switch.truth() == {1: 13}
    assert rest.ask("PUT", PAIRS, whole(), f'If-Match: "x", {new}')[0] == 204
    assert rest.ask("PUT", PAIRS, whole((3, 15)), "If-Match: *")[0] == 204


@pytest.mark.parametrize(
    ("fault", "status", "tag"),
    [
        ("disable_port", 409, "in-use"),
        ("lock_port", 409, "lock-denied"),
        ("fail_port", 500, "operation-failed"),
    ],
)
def test_an_unfit_port_is_refused_in_the_words_of_restconf(rest, switch, fault, status, tag):
    switch.do("set_fault", fault=fault, port=13)
    found, _, document = rest.ask("PUT", f"{PAIRS}/pair=1", pair(1, 13))
    assert (found, error_tag(document)) == (status, tag)
    assert switch.truth() == {}


@pytest.mark.parametrize(("when_occupied", "status"), [("reject", 409), ("replace", 201)])
def test_an_output_in_use_is_refused_or_taken_as_the_option_says(world, when_occupied, status):
    switch = world("polatis", size=(12, 12), when_occupied=when_occupied)
    rest = Raw(switch)
    rest.ask("PUT", PAIRS, whole((1, 13)))
    assert rest.ask("PUT", f"{PAIRS}/pair=2", pair(2, 13))[0] == status
    assert switch.truth() == ({1: 13} if status == 409 else {2: 13})


@pytest.mark.parametrize(
    ("target", "document"),
    [
        (PAIRS, {}),
        (PAIRS, {"optical-switch:cross-connects": []}),
        (PAIRS, {"optical-switch:cross-connects": {"pair": [{"ingress": 1}]}}),
        (PAIRS, whole((1, 13), (1, 14))),
        (PAIRS, whole((1, 13), (2, 13))),
        (PAIRS, whole((13, 1))),
        (PAIRS, whole((1, 99))),
        (
            PAIRS,
            {
                "optical-switch:cross-connects": {
                    "pair": [{"ingress": "\N{FULLWIDTH DIGIT ONE}", "egress": 13}]
                }
            },
        ),
        (PAIRS, {"optical-switch:cross-connects": {"pair": [{"ingress": "1" * 5000, "egress": 13}]}}),
        (f"{PAIRS}/pair=1", pair(2, 13)),
        (f"{PAIRS}/pair=1", {"optical-switch:pair": []}),
        (f"{PORTS}/port=1", {"optical-switch:port": [{"status": "ON"}]}),
        (f"{PORTS}/port=1", {"optical-switch:port": []}),
        (f"{PORTS}/port=99", {"optical-switch:port": [{"status": "ENABLED"}]}),
    ],
)
def test_what_makes_no_sense_is_a_bad_request(rest, switch, target, document):
    assert rest.ask("PUT", target, document)[0] == 400
    assert switch.truth() == {}


def test_ports_have_states_labels_and_peers(rest):
    rest.ask("PUT", PAIRS, whole((1, 13)))
    settings = {"optical-switch:port": [{"port-id": 1, "status": "DISABLED", "label": "rack 4"}]}
    assert rest.ask("PUT", f"{PORTS}/port=1", settings)[0] == 204
    entries = rest.ask("GET", PORTS)[2]["optical-switch:port-config"]["port"]
    assert entries[0] == {"port-id": 1, "status": "DISABLED", "label": "rack 4", "peer-port": 13}
    assert entries[1] == {"port-id": 2, "status": "ENABLED", "label": "", "peer-port": ""}  # as in a capture
    assert rest.ask("GET", f"{PORTS}/port=13")[2]["optical-switch:port"]["peer-port"] == 1
    assert len(entries) == 24


def test_powers_are_strings_with_two_digits(rest):
    readings = rest.ask("GET", "/api/data/optical-switch:opm-power/port")[2]["optical-switch:port"]
    assert [reading["port-id"] for reading in readings] == list(range(1, 25))
    assert all(re.fullmatch(r"-?\d+\.\d\d", reading["power"]) for reading in readings)


def test_the_product_is_told(rest):
    product = rest.ask("GET", "/api/data/optical-switch:product-information")[2]
    told = product["optical-switch:product-information"]
    assert set(told) == {"manufacturer", "serial-number", "model-name", "software-version"}
    assert told["serial-number"].startswith("SIM")


def test_without_a_login_nothing_is_told(switch):
    client = switch.attach("rest")
    client.send(f"GET {PAIRS} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    switch.settle()
    assert parse(client.receive())[0] == 401


def test_a_dropped_request_is_answered_and_not_done(rest, switch):
    switch.do("set_fault", fault="drop_command")
    assert rest.ask("PUT", PAIRS, whole((1, 13)))[0] == 204
    assert switch.truth() == {}


def test_the_answer_comes_when_the_light_is_there(world):
    switch = world("polatis", size=(12, 12), settings={"switch_time_s": 0.5})
    client = switch.attach("rest")
    body = json.dumps(whole((1, 13)))
    account = b64encode(b"admin:root").decode()
    client.send(
        f"PUT {PAIRS} HTTP/1.1\r\nHost: h\r\nAuthorization: Basic {account}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    switch.advance(0.4)
    assert client.receive() == b""
    switch.advance(0.2)
    assert parse(client.receive())[0] == 204


@pytest.mark.parametrize(("mode", "left"), [("DARK", {}), ("AUTOSAVE", {1: 13})])
def test_a_power_cycle_leaves_what_the_boot_mode_keeps(world, mode, left):
    switch = world("polatis", size=(12, 12), settings={"boot_mode": mode})
    Raw(switch).ask("PUT", PAIRS, whole((1, 13)))
    switch.do("power_cycle", off_s=0.0)
    assert Raw(switch).ask("GET", PAIRS)[2] == (whole((1, 13)) if left else "")
    assert switch.truth() == left


@pytest.mark.long
def test_whatever_document_comes_the_answer_is_a_status_and_the_next_client_is_served(switch, rest):
    met: Counter[int] = Counter()
    names = [
        "optical-switch:cross-connects",
        "pair",
        "ingress",
        "egress",
        "optical-switch:port",
        "status",
        "label",
    ]
    leaves = (
        st.none() | st.booleans() | st.integers(-1, 25) | st.text(max_size=3) | st.floats(allow_nan=False)
    )
    documents = st.recursive(
        leaves,
        lambda inside: (
            st.lists(inside, max_size=3) | st.dictionaries(st.sampled_from(names), inside, max_size=3)
        ),
    )
    likely = st.lists(st.tuples(st.integers(0, 13), st.integers(12, 25)), max_size=3).map(
        lambda found: whole(*found)
    )

    @given(st.one_of(likely, documents), st.sampled_from([PAIRS, f"{PAIRS}/pair=1", f"{PORTS}/port=1"]))
    @settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
    def put(document: Any, target: str) -> None:
        status = rest.ask("PUT", target, document)[0]
        met[status] += 1
        assert status in {201, 204, 400, 409}
        assert len(set(switch.truth().values())) == len(switch.truth())

    put()
    assert met[204] >= 5
    assert met[400] >= 20


# -- XML beside JSON

XML = "application/yang-data+xml"
AS_XML, ACCEPT_XML = f"Content-Type: {XML}", f"Accept: {XML}"
AS_JSON, ACCEPT_JSON = f"Content-Type: {TYPE}", f"Accept: {TYPE}"
NAMESPACE = 'xmlns="http://www.polatis.com/yang/optical-switch"'


def test_a_body_may_be_xml_and_so_the_answer(rest, switch):
    body = b"<cross-connects><pair><ingress>1</ingress><egress>13</egress></pair></cross-connects>"
    assert rest.send("PUT", PAIRS, body, AS_XML, ACCEPT_XML)[0] == 204
    status, headers, text = rest.send("GET", PAIRS, b"", ACCEPT_XML)
    assert (status, headers["content-type"]) == (200, XML)
    assert text == body.decode().replace("<cross-connects>", f"<cross-connects {NAMESPACE}>")
    named = text.replace("13", "14").encode()  # what it said is understood, namespace and all
    assert rest.send("PUT", PAIRS, named, AS_XML)[0] == 204
    assert switch.truth() == {1: 14}
    assert rest.send("PUT", PAIRS, b"<cross-connects/>", AS_XML)[0] == 204
    assert switch.truth() == {}


def test_a_refusal_is_written_in_the_medium_of_the_client(rest):
    status, headers, text = rest.send("PUT", f"{PAIRS}/pair=1", b"<pair/>", AS_XML, ACCEPT_XML)
    assert (status, headers["content-type"]) == (400, XML)
    assert text.startswith('<errors xmlns="urn:ietf:params:xml:ns:yang:ietf-restconf"><error><error-type>')


@pytest.mark.parametrize(
    ("headers", "medium"),
    [
        ((), XML),
        (("Accept: */*",), XML),
        ((AS_JSON,), TYPE),  # RFC 8040, 5.2: as it is spoken to
        (("Accept: */*", AS_JSON), TYPE),
        (("Accept: application/json",), TYPE),
        (("Accept: text/html, application/xml;q=0.9, */*;q=0.8",), XML),
        ((ACCEPT_JSON, AS_XML), TYPE),
    ],
)
def test_the_medium_of_an_answer_is_the_one_asked_for_or_spoken_or_the_default(rest, headers, medium):
    rest.ask("PUT", PAIRS, whole((1, 13)))
    assert rest.send("GET", PAIRS, b"", *headers)[1]["content-type"] == medium


def test_another_default_and_an_empty_answer_are_options(world):
    rest = Raw(world("polatis", size=(12, 12), rest_default="json", rest_nothing="200"))
    status, headers, document = rest.send("GET", PAIRS)
    assert (status, headers["content-type"], document) == (200, TYPE, whole())
    assert rest.send("GET", f"{PAIRS}/pair=1")[0] == 404


def test_what_is_neither_xml_nor_json_is_415_or_406(rest, switch):
    body = json.dumps(whole((1, 13))).encode()
    for kind in ("application/x-www-form-urlencoded", "text/plain", "application/json"):
        status, _, document = rest.send("PUT", PAIRS, body, f"Content-Type: {kind}", ACCEPT_JSON)
        assert status == 415
        assert XML in document["ietf-restconf:errors"]["error"][0]["error-message"]
    assert switch.truth() == {}
    assert rest.send("GET", PAIRS, b"", "Accept: text/html")[0] == 406


@pytest.mark.parametrize(
    "body",
    [
        b"<pair><ingress>1</ingress></pair>",
        b"<pair><ingress>x</ingress><egress>13</egress></pair>",
        b"<pair><ingress>1</ingress><egress>13</egress>",
        b"<cross-connects/>",
        b"<pair/>",
        b"",
        b"{}",
        b"\xff<pair/>",
        b'<!DOCTYPE p [<!ENTITY a "1">]><pair><ingress>&a;</ingress><egress>13</egress></pair>',
        b"<pair><ingress><deep>1</deep></ingress><egress>13</egress></pair>",
    ],
)
def test_xml_without_sense_is_a_bad_request(rest, switch, body):
    assert rest.send("PUT", f"{PAIRS}/pair=1", body, AS_XML)[0] == 400
    assert switch.truth() == {}


def test_a_list_has_no_root_in_xml(rest):
    rest.ask("PUT", PAIRS, whole((1, 13), (2, 14)))
    assert rest.send("GET", f"{PAIRS}/pair", b"", ACCEPT_XML)[0] == 400  # RFC 8040, 4.3
    assert rest.ask("GET", f"{PAIRS}/pair")[2] == {
        "optical-switch:pair": [{"ingress": 1, "egress": 13}, {"ingress": 2, "egress": 14}]
    }


# -- attenuators

VOA = "/api/data/optical-switch:voa"


def voa(port: int, mode: str, **more: Any) -> dict[str, Any]:
    return {"optical-switch:voa": {"port": [{"port-id": port, "atten-mode": f"VOA_MODE_{mode}", **more}]}}


def test_attenuators_are_those_of_the_outputs_and_the_same_over_tl1(rest, switch):
    rest.ask("PUT", PAIRS, whole((1, 13)))
    entries = rest.ask("GET", VOA)[2]["optical-switch:voa"]["port"]
    assert entries == [{"port-id": port, "atten-mode": "VOA_MODE_NONE"} for port in range(13, 25)]
    before = float(rest.ask("GET", "/api/data/opm-power/port=13")[2]["optical-switch:port"]["power"])
    change = voa(13, "RELATIVE", **{"atten-level": -5.0, "reference-port": 0})
    assert rest.ask("PATCH", VOA, change, AS_JSON)[0] == 204
    found = rest.ask("GET", f"{VOA}/port=13")[2]["optical-switch:port"]
    assert found == {"port-id": 13, "atten-mode": "VOA_MODE_RELATIVE", "atten-level": "-5.00"}
    after = float(rest.ask("GET", "/api/data/opm-power/port=13")[2]["optical-switch:port"]["power"])
    assert after == pytest.approx(before - 5.0, abs=0.02)
    tl1 = switch.attach("tl1")
    tl1.send(b"ACT-USER::admin:1::root;RTRV-PORT-ATTEN::13:2:;")
    switch.settle()
    assert '"13:RELATIVE,-5.0,0"' in tl1.receive().decode()
    tl1.send(b"SET-PORT-ATTEN::13:3:::MODE=CONVERGED,LEVEL=-9,REFS=2;")
    switch.settle()
    found = rest.ask("GET", f"{VOA}/port=13")[2]["optical-switch:port"]
    assert (found["atten-mode"], found["atten-level"], found["reference-port"]) == (
        "VOA_MODE_CONVERGED",
        "-9.00",
        2,
    )


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (voa(1, "NONE"), 400),
        (voa(99, "NONE"), 400),
        (voa(13, "FIXED"), 400),
        (voa(13, "ABSOLUTE"), 400),
        (voa(13, "ABSOLUTE", **{"atten-level": "nan"}), 400),
        (voa(13, "ABSOLUTE", **{"atten-level": -99}), 400),
        (voa(13, "RELATIVE", **{"atten-level": -3, "reference-port": 77}), 400),
        ({"optical-switch:voa": {"port": [{"atten-mode": "VOA_MODE_NONE"}]}}, 400),
        ({"optical-switch:voa": {"port": 7}}, 400),
        ({"optical-switch:voa": []}, 400),
    ],
)
def test_attenuators_without_sense_are_bad_requests(rest, switch, change, status):
    assert rest.ask("PATCH", VOA, change)[0] == status
    assert switch.twin.device.attenuators == {}
    assert rest.ask("GET", f"{VOA}/port=1")[0] == 404


# -- what public clients send, and what they read (docs/reference/evidence.md names them)


def test_a_shell_script_puts_pairs_in_xml_and_deletes_all(rest, switch):
    """PUT of pairs by curl; it takes 201 or 204, and deletes the collection with the type of an absent body."""
    for source, output in ((1, 13), (2, 14), (1, 15)):
        body = f"<pair><ingress>{source}</ingress><egress>{output}</egress></pair>".encode()
        assert rest.send("PUT", f"{PAIRS}/pair={source}", body, ACCEPT_XML, AS_XML)[0] in {201, 204}
    assert switch.truth() == {1: 15, 2: 14}
    assert rest.send("DELETE", PAIRS, b"", ACCEPT_XML, AS_XML)[0] == 204
    assert switch.truth() == {}


def test_a_quantum_network_stack_patches_without_a_content_type(rest, switch):
    """pqnstack: XML without a type, one pair as an object, 204 for none, 409 in use, 404 for a removal of nothing."""
    assert rest.send("GET", "/api", b"", ACCEPT_JSON)[0] == 200
    product = rest.ask("GET", "/api/data/optical-switch:product-information")[2]
    assert {"serial-number", "model-name", "software-version"} <= product[
        "optical-switch:product-information"
    ].keys()
    assert rest.ask("GET", PAIRS)[0] == rest.ask("GET", f"{PAIRS}/pair=3")[0] == 204
    body = b"<pair><ingress>3</ingress><egress>14</egress></pair>"
    assert rest.send("POST", PAIRS, body, ACCEPT_XML)[0] == 201
    assert rest.send("POST", PAIRS, body.replace(b"3<", b"4<"), ACCEPT_XML)[0] == 409
    assert rest.ask("GET", f"{PAIRS}/pair=3")[2]["optical-switch:pair"]["egress"] == 14
    assert rest.ask("GET", PAIRS)[2]["optical-switch:cross-connects"]["pair"] == [
        {"ingress": 3, "egress": 14}
    ]
    assert rest.ask("DELETE", f"{PAIRS}/pair=3")[0] == 204
    assert rest.ask("DELETE", f"{PAIRS}/pair=3")[0] == 404
    assert switch.truth() == {}


def test_an_optical_lab_applies_pairs_and_attenuates(rest, switch):
    """UFABC: PUT of the whole, POST and DELETE of a pair by both ends, PATCH of `voa`, three reads a port."""
    assert rest.ask("PUT", PAIRS, whole((1, 23), (5, 19)), AS_JSON)[0] in {200, 201, 204}
    assert rest.ask("POST", PAIRS, pair(2, 24), AS_JSON)[0] in {200, 201, 204}
    assert rest.ask("DELETE", f"{PAIRS}/pair=2,24", None, AS_JSON)[0] in {200, 201, 204}
    assert switch.truth() == {1: 23, 5: 19}
    change = voa(19, "ABSOLUTE", **{"atten-level": 3.0})
    assert rest.ask("PATCH", VOA, change, AS_JSON)[0] in {200, 201, 204}
    for node, wanted in (("port-config", "peer-port"), ("opm-power", "power"), ("voa", "atten-mode")):
        target = f"/api/data/optical-switch:{node}"
        entries = rest.ask("GET", target)[2][f"optical-switch:{node}"]["port"]
        assert all({"port-id", wanted} <= entry.keys() for entry in entries)
        assert rest.send("GET", target)[2].count("<port-id>") == len(
            entries
        )  # its first reader took XML unasked


def test_a_service_of_paths_creates_reads_labels_and_deletes(rest, switch):
    """A service on Vert.x: a bare pair posted, the list of pairs without its container, labels by PATCH."""
    body = b'{"optical-switch:pair":{"ingress":1,"egress":13}}'
    assert rest.send("POST", PAIRS, body, AS_JSON)[0] == 201
    status, _, document = rest.send("GET", f"{PAIRS}/pair", b"", AS_JSON)
    assert (status, document) == (200, {"optical-switch:pair": [{"ingress": 1, "egress": 13}]})
    assert rest.send("PATCH", f"{PORTS}/port=1", b'{"port": {"label":"trail 7"}}', AS_JSON)[0] == 204
    assert "trail 7" in json.dumps(rest.send("GET", f"{PORTS}/port=1?fields=label", b"", AS_JSON)[2])
    assert switch.do("truth")["ports"]["1"] == "E"
    assert rest.send("DELETE", f"{PAIRS}/pair=1")[0] == 204
    assert rest.send("DELETE", f"{PAIRS}/pair=1")[0] == 404


def test_a_web_interface_uses_names_without_their_module(rest, switch):
    """polatis2: every resource without `optical-switch:`, changes by PATCH of lists, deletion of one and of all."""
    data = "/api/data"
    pairs = {"pair": [{"ingress": 1, "egress": 13}, {"ingress": 2, "egress": 14}]}
    assert rest.ask("PATCH", f"{data}/cross-connects/pair", pairs, AS_JSON)[0] == 204
    swapped = {"pair": [{"ingress": 1, "egress": 14}, {"ingress": 2, "egress": 13}]}
    assert rest.ask("PATCH", f"{data}/cross-connects/pair", swapped, AS_JSON)[0] == 204
    assert switch.truth() == {1: 14, 2: 13}
    assert rest.ask("PATCH", f"{data}/cross-connects/pair", pair(3, 13), AS_JSON)[0] == 409
    for target in (
        "cross-connects/pair",
        "port-config/port",
        "opm-power/port",
        "voa/port",
        "product-information",
    ):
        status, _, document = rest.ask("GET", f"{data}/{target}")
        assert (status, len(document)) == (200, 1)  # it takes the value of the one name, whatever it is
    closed = {"port": [{"port-id": 4, "status": "DISABLED"}, {"port-id": 5, "label": "rack 4"}]}
    assert rest.ask("PATCH", f"{data}/port-config/port", closed, AS_JSON)[0] == 204
    assert (switch.do("truth")["ports"]["4"], switch.twin.device.labels) == ("D", {5: "rack 4"})
    assert rest.ask("DELETE", f"{data}/cross-connects/pair=1", None, AS_JSON)[0] == 204
    assert rest.ask("DELETE", f"{data}/cross-connects/pair", None, AS_JSON)[0] == 204
    assert switch.truth() == {}


def test_a_library_in_xml_connects_labels_and_deletes(rest, switch):
    """A Python library: POST of a pair, PATCH of a label, powers of one port, DELETE of the collection, all in XML."""
    body = b"<pair><ingress>1</ingress><egress>13</egress></pair>"
    assert rest.send("POST", PAIRS, body, AS_XML, ACCEPT_XML)[0] == 201
    label = b"<port><label>rack 4</label><peer-port>far end</peer-port></port>"
    assert rest.send("PATCH", f"{PORTS}/port=1", label, AS_XML, ACCEPT_XML)[0] == 204
    assert "<label>rack 4</label>" in rest.send("GET", f"{PORTS}/port=1", b"", ACCEPT_XML)[2]
    power = rest.send("GET", "/api/data/optical-switch:opm-power/port=1", b"", ACCEPT_XML)[2]
    assert re.search(r"<power>-?\d+\.\d\d</power>", power)
    assert rest.send("DELETE", PAIRS, b"", AS_XML, ACCEPT_XML)[0] == 204
    assert switch.truth() == {}


def test_a_page_of_a_laboratory_reads_pairs_in_json_without_accepting_it(rest):
    """A page in a browser: `Accept: */*` and the type of JSON on a read."""
    rest.ask("PUT", PAIRS, whole((1, 13)))
    assert rest.send("GET", PAIRS, b"", "Accept: */*", AS_JSON)[2] == whole((1, 13))
