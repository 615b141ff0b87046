"""The simulated Calient over REST: the published requests and documents, by raw bytes; items that fail, cookies."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from libraries import skip_without

skip_without("h11")

CIRCUITS, PORTS = "/rest/crossconnects/", "/rest/ports/"
BASIC = "Basic " + b64encode(b"admin:admin").decode()
SIZE = 16


class Browser:
    """A client in memory that knows nothing but HTTP with a length."""

    def __init__(self, world: Any, **headers: str) -> None:
        self.world = world
        self.headers = headers or {"Authorization": BASIC}
        self._client = world.attach("rest")

    def ask(
        self, method: str, target: str, body: bytes = b"", **headers: str
    ) -> tuple[int, dict[str, str], Any]:
        """Return status, headers and the document (or text) of the answer, which comes within a second."""
        head = {"Host": "ocs1", **self.headers, **headers, "Content-Length": str(len(body))}
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
        self._client.send("\r\n".join(lines).encode() + body)
        self.world.advance(1.0)
        return self._answer(self._client.received())

    @staticmethod
    def _answer(data: bytes) -> tuple[int, dict[str, str], Any]:
        head, _, body = data.partition(b"\r\n\r\n")
        status, *fields = head.decode().split("\r\n")
        found = {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}
        assert len(body) == int(found["content-length"])
        is_json = found["content-type"] == "application/json"
        return int(status.split()[1]), found, json.loads(body) if is_json else body.decode()

    def get(self, target: str) -> Any:
        status, _, document = self.ask("GET", target)
        assert status == 200, document
        return document

    def post(self, target: str, document: Any) -> Any:
        status, _, answer = self.ask(
            "POST", target, json.dumps(document).encode(), **{"Content-Type": "application/json"}
        )
        assert status == 200, answer
        return answer


def item(source: str, target: str, way: str = "uni") -> dict[str, str]:
    mark = "-" if way == "bi" else ">"
    return {"in": source, "out": target, "group": "SYSTEM", "conn": f"{source}{mark}{target}", "dir": way}


DONE = {"status": "1", "msg": "Success", "description": ""}


@pytest.fixture
def device(world):
    return world("calient", size=(SIZE, SIZE))


@pytest.fixture
def browser(device):
    return Browser(device)


# -- what is published


def test_published_probe(browser):
    assert browser.get("/rest/info/?id=restversion")["restversion"]


def test_published_list(device, browser):
    assert browser.get(f"{CIRCUITS}?id=list") == []
    assert (
        browser.post(f"{CIRCUITS}?id=badd", [item("1.1.1", "1.1.2"), item("1.1.3", "1.1.4", "bi")])
        == [DONE] * 2
    )
    one_way, two_way = browser.get(f"{CIRCUITS}?id=list")
    assert set(one_way) == {"name", "group", "dir", "band", "half1", "half2"}
    assert (one_way["name"], one_way["dir"], one_way["half2"]) == ("1.1.1>1.1.2", "uni", {})
    half = one_way["half1"]
    assert set(half) == {"conn", "inp", "outp", "loss", "alarm", "as", "os", "oc", "state"}
    assert (half["conn"], half["as"], half["os"], half["oc"]) == ("1.1.1>1.1.2", "IS", "IS", "OK")
    assert float(half["inp"]) - float(half["outp"]) == pytest.approx(float(half["loss"]), abs=0.11)
    assert (two_way["name"], two_way["dir"]) == ("1.1.3-1.1.4", "bi")
    assert [two_way[name]["conn"] for name in ("half1", "half2")] == ["1.1.3>1.1.4", "1.1.4>1.1.3"]
    assert device.truth() == {1: SIZE + 2, 3: SIZE + 4, 4: SIZE + 3}


def test_published_detail(browser):
    browser.post(f"{CIRCUITS}?id=add", item("1.1.1", "1.1.2"))
    (found,) = browser.get(f"{CIRCUITS}?id=detail&conn=1.1.1%3E1.1.2")
    assert found["name"] == "1.1.1>1.1.2"
    assert browser.get(f"{CIRCUITS}?id=detail&conn=1.1.1%3E1.1.3") == []


@pytest.mark.parametrize("in_query", [True, False])
def test_published_form(device, browser, in_query):
    form = "in=1.1.1&out=1.1.2&dir=bi" + ("" if in_query else "&id=add")
    target = CIRCUITS + ("?id=add" if in_query else "")
    answer = browser.ask(
        "POST", target, form.encode(), **{"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert (answer[0], answer[2]) == (200, [DONE])
    assert device.truth() == {1: SIZE + 2, 2: SIZE + 1}


def test_published_deletions(device, browser):
    names = [f"1.1.{n}>1.1.{n}" for n in range(1, 6)]
    browser.post(f"{CIRCUITS}?id=badd", [item(f"1.1.{n}", f"1.1.{n}") for n in range(1, 6)])
    assert browser.post(f"{CIRCUITS}?id=bdel", [{"conn": name} for name in names[:2]]) == [DONE] * 2
    assert browser.ask("DELETE", f"{CIRCUITS}?conn=1.1.3%3E1.1.3")[2] == [DONE]
    assert device.truth() == {4: SIZE + 4, 5: SIZE + 5}
    assert browser.post(f"{CIRCUITS}?id=deleteall", []) == [DONE] * 2
    assert device.truth() == {}


def test_published_activation_and_deactivation(device, browser):
    browser.post(f"{CIRCUITS}?id=add", item("1.1.1", "1.1.2"))
    for verb, states in (("deactivate", ("UMA", "RDY")), ("activate", ("IS", "IS"))):
        assert browser.post(f"{CIRCUITS}?id={verb}&conn=1.1.1%3E1.1.2", {}) == [DONE]
        half = browser.get(f"{CIRCUITS}?id=list")[0]["half1"]
        assert (half["as"], half["os"]) == states
    assert device.truth() == {1: SIZE + 2}


def test_published_details_of_a_port(device, browser):
    device.twin.device.labels[1] = "rack 4"
    browser.post(f"{CIRCUITS}?id=add", item("1.1.1", "1.1.2"))
    detail = browser.get(f"{PORTS}?id=detail&port=1.1.1")
    assert set(detail) >= {
        *("port", "inpower", "outpower", "inas", "inos", "inoc", "outas", "incircuit", "outcircuit"),
        *("inalias", "inowner", "inopt"),
    }
    assert (detail["incircuit"], detail["outcircuit"], detail["inalias"]) == ("1.1.1>1.1.2", "", "rack 4")
    assert float(detail["inpower"]) > -10
    assert detail["outpower"] == "NONE"
    assert browser.ask("GET", f"{PORTS}?id=detail&port=9.9.9")[0] == 404


def test_a_failure_of_an_item_is_told_under_200(device, browser):
    browser.post(f"{CIRCUITS}?id=add", item("1.1.1", "1.1.2"))
    wanted = [item("1.1.3", "1.1.3"), item("1.1.4", "1.1.2"), item("1.1.5", "9.9.9"), item("1.1.6", "1.1.6")]
    results = browser.post(f"{CIRCUITS}?id=badd", wanted)
    assert [result["status"] for result in results] == ["1", "0", "0", "1"]
    assert "Invalid Connection" in results[1]["description"]
    assert device.truth() == {1: SIZE + 2, 3: SIZE + 3, 6: SIZE + 6}


# -- logins


def test_published_basic_login_hands_out_a_cookie(device):
    assert Browser(device, Accept="*/*").ask("GET", f"{CIRCUITS}?id=list")[0] == 401
    wrong = "Basic " + b64encode(b"admin:wrong").decode()
    assert Browser(device, Authorization=wrong).ask("GET", f"{CIRCUITS}?id=list")[0] == 401
    _, headers, _ = Browser(device).ask("GET", f"{CIRCUITS}?id=list")
    name, _, value = headers["set-cookie"].partition(";")[0].partition("=")
    visitor = Browser(device, Cookie=f"{name}={value}")
    assert visitor.get(f"{CIRCUITS}?id=list") == []
    device.do("set_fault", fault="expire_session")
    assert visitor.ask("GET", f"{CIRCUITS}?id=list")[0] == 401


# -- faults and options


@pytest.mark.parametrize("failing", [1, 2])
def test_one_item_of_the_next_bulk_fails(device, browser, failing):
    device.do("set_fault", fault="fail_item", item=failing)
    browser.post(f"{CIRCUITS}?id=add", item("1.1.5", "1.1.5"))  # no bulk
    results = browser.post(f"{CIRCUITS}?id=badd", [item("1.1.1", "1.1.1"), item("1.1.2", "1.1.2")])
    assert [result["status"] for result in results] == [str(int(n != failing)) for n in (1, 2)]
    assert browser.post(f"{CIRCUITS}?id=badd", [item(f"1.1.{failing}", f"1.1.{failing}")]) == [DONE]


def test_an_account_that_may_only_read(device, browser):
    device.do("set_fault", fault="deny_writes")
    assert browser.get(f"{CIRCUITS}?id=list") == []
    for method, target in (("POST", f"{CIRCUITS}?id=badd"), ("DELETE", f"{CIRCUITS}?conn=x")):
        assert browser.ask(method, target, b"[]")[0] == 403
    assert device.do("truth")["fired"]["deny_writes"] == 2


def test_an_ignored_change_is_answered_all_the_same(device, browser):
    device.do("set_fault", fault="drop_command")
    assert browser.post(f"{CIRCUITS}?id=badd", [item("1.1.1", "1.1.1")] * 2) == [DONE] * 2
    assert device.truth() == {}


def test_a_skipped_activation_leaves_it_provisioned(device, browser):
    device.do("set_fault", fault="skip_activate")
    assert browser.post(f"{CIRCUITS}?id=add", item("1.1.1", "1.1.1")) == [DONE]
    half = browser.get(f"{CIRCUITS}?id=list")[0]["half1"]
    assert (half["as"], half["os"]) == ("UMA", "RDY")


@pytest.mark.parametrize(("option", "lit"), [("yes", True), ("no", False)])
def test_a_change_is_answered_when_the_mirrors_have_arrived_or_at_once(world, option, lit):
    device = world("calient", size=(SIZE, SIZE), rest_waits=option, settings={"switch_time_s": 0.5})
    browser = Browser(device)
    body = json.dumps(item("1.1.1", "1.1.1")).encode()
    head = f"POST {CIRCUITS}?id=add HTTP/1.1\r\nHost: x\r\nAuthorization: {BASIC}\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    browser._client.send(head.encode() + body)
    device.settle()
    assert bool(browser._client.received()) != lit
    device.advance(0.6)
    assert bool(browser._client.received()) == lit


def test_a_short_summary_tells_the_names(world):
    summary = Browser(world("calient", size=(SIZE, SIZE), summary="short")).get(f"{PORTS}?id=summary")
    assert [row["port"] for row in summary][:9:8] == ["1.1.1", "1.2.1"]
    assert set(summary[0]) == {"port", "inalias"}


def test_ports_that_are_not_fit_are_told(device, browser):
    device.do("set_fault", fault="fail_port", port=1)
    device.do("set_fault", fault="disable_port", port=SIZE + 2)
    device.do("set_fault", fault="lock_port", port=3)
    rows = browser.get(f"{PORTS}?id=summary")
    assert (rows[0]["inas"], rows[0]["inos"], rows[0]["inoc"], rows[0]["outos"]) == (
        "IS",
        "OOS",
        "FAIL",
        "IS",
    )
    assert (rows[1]["outas"], rows[2]["inas"]) == ("OOS", "LCK")


@pytest.mark.parametrize(
    ("method", "target", "body", "status"),
    [
        ("GET", f"{CIRCUITS}?id=colour", b"", 400),
        ("GET", f"{PORTS}?id=colour", b"", 400),
        ("POST", f"{CIRCUITS}?id=colour", b"[]", 400),
        ("POST", f"{CIRCUITS}?id=badd", b"{}", 400),
        ("POST", f"{CIRCUITS}?id=badd", b"[1]", 400),
        ("POST", f"{CIRCUITS}?id=badd", b"[", 400),
        ("PUT", CIRCUITS, b"[]", 405),
        ("GET", "/rest/colours/", b"", 404),
    ],
)
def test_requests_without_sense(device, browser, method, target, body, status):
    assert browser.ask(method, target, body)[0] == status
    assert device.truth() == {}


@pytest.mark.parametrize("wrong", [{}, {"in": "1.1.1"}, {"in": 1, "out": None}, {"in": "1.1.1", "out": "x"}])
def test_items_without_sense_fail_alone(browser, wrong):
    results = browser.post(f"{CIRCUITS}?id=badd", [wrong, item("1.1.1", "1.1.1")])
    assert [result["status"] for result in results] == ["0", "1"]
    assert browser.post(f"{CIRCUITS}?id=bdel", [wrong])[0]["status"] == "0"


def test_both_languages_tell_of_one_state(device, browser):
    client = device.attach("tl1")
    for command in (
        "ACT-USER::admin:1::admin;",
        "ENT-CRS::1.1.1,1.1.2:1::LAB,2WAY;",
        "ACT-CRS:::1::1.1.1-1.1.2;",
    ):
        client.send(command.encode())
        device.advance(0.1)
    (found,) = browser.get(f"{CIRCUITS}?id=list")
    assert (found["name"], found["group"], found["half2"]["os"]) == ("1.1.1-1.1.2", "LAB", "IS")
    browser.post(f"{CIRCUITS}?id=bdel", [{"conn": "1.1.1-1.1.2"}])
    client.send(b"RTRV-CRS:::2::ALL;")
    device.advance(0.1)
    assert "REPT DBCHG" in (text := client.received().decode())
    assert "SRCPORT" not in text
