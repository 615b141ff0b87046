"""The simulated switch's RESTCONF, by raw bytes: the rows that public clients show, and what may go wrong."""

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
        body = b"" if document is None else json.dumps(document).encode()
        head = [
            f"{method} {target} HTTP/1.1",
            "Host: switch",
            f"Authorization: Basic {b64encode(b'admin:root').decode()}",
            f"Content-Length: {len(body)}",
            *headers,
        ]
        self.client.send("\r\n".join([*head, "", ""]).encode() + body)
        self._world.advance(1.0)
        return parse(self.client.received())


def parse(data: bytes) -> tuple[int, dict[str, str], Any]:
    head, _, body = data.decode().partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert len(body) == int(headers.get("content-length", "0"))
    return int(status.split()[1]), headers, json.loads(body) if body.startswith("{") else body


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
    assert re.fullmatch(r'".+"', headers["etag"])
    assert switch.truth() == {1: 13}


def test_a_pair_is_created_then_replaced_then_deleted(rest, switch):
    assert rest.ask("PUT", f"{PAIRS}/pair=1", pair(1, 13))[0] == 201
    assert rest.ask("PUT", f"{PAIRS}/pair=1", pair(1, 14))[0] == 204
    assert rest.ask("GET", f"{PAIRS}/pair=1")[2] == pair(1, 14)
    assert rest.ask("DELETE", f"{PAIRS}/pair=1")[0] == 204
    assert rest.ask("GET", f"{PAIRS}/pair=1")[0] == 404
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
    assert entries[1] == {"port-id": 2, "status": "ENABLED", "label": ""}
    assert rest.ask("GET", f"{PORTS}/port=13")[2]["optical-switch:port"][0]["peer-port"] == 1
    assert len(entries) == 24


def test_powers_are_strings_with_two_digits(rest):
    readings = rest.ask("GET", "/api/data/optical-switch:opm-power/port")[2]["optical-switch:opm-power"][
        "port"
    ]
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
    assert parse(client.received())[0] == 401


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
    assert client.received() == b""
    switch.advance(0.2)
    assert parse(client.received())[0] == 204


@pytest.mark.parametrize(("mode", "left"), [("DARK", {}), ("AUTOSAVE", {1: 13})])
def test_a_power_cycle_leaves_what_the_boot_mode_keeps(world, mode, left):
    switch = world("polatis", size=(12, 12), settings={"boot_mode": mode})
    Raw(switch).ask("PUT", PAIRS, whole((1, 13)))
    switch.do("power_cycle", off_s=0.0)
    document = Raw(switch).ask("GET", PAIRS)[2]
    assert {
        entry["ingress"]: entry["egress"] for entry in document["optical-switch:cross-connects"]["pair"]
    } == left


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
