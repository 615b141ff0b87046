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
        return self._answer(self._client.receive())

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
DONE_IN_BULK = {"response": DONE}


def statuses(results: list[dict[str, Any]]) -> list[str]:
    """Return what the public client that parses a bulk reads: `res['response']['status']`."""
    return [result["response"]["status"] for result in results]


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
        == [DONE_IN_BULK] * 2
    )
    one_way, two_way = browser.get(f"{CIRCUITS}?id=list")
    assert set(one_way) == {
        "name",
        "group",
        "dir",
        "band",
        "half1",
    }  # the vendor's script asks if half2 is there
    assert (one_way["name"], one_way["dir"]) == ("1.1.1>1.1.2", "uni")
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
    assert browser.post(f"{CIRCUITS}?id=bdel", [{"conn": name} for name in names[:2]]) == [DONE_IN_BULK] * 2
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
    (detail,) = browser.get(f"{PORTS}?id=detail&port=1.1.1")
    assert set(detail) == {  # a capture of one port in the documentation of a public client, a list of one
        *(
            "outoc",
            "outopwdh",
            "inos",
            "outalias",
            "inowner",
            "outopwct",
            "inpower",
            "inas",
            "outpower",
            "outas",
        ),
        *(
            "inopt",
            "inopth",
            "incircuit",
            "inalias",
            "inoc",
            "inoptc",
            "outos",
            "port",
            "outowner",
            "outcircuit",
        ),
    }
    assert (detail["incircuit"], detail["outcircuit"], detail["inalias"]) == ("1.1.1>1.1.2", "", "rack 4")
    assert (detail["inas"], detail["inowner"]) == ("IS", "TRANSIT")
    assert (detail["outas"], detail["outos"], detail["outowner"]) == ("OOS-NP", "OOS", "NONE")
    assert float(detail["inpower"]) > -10
    assert detail["outpower"] == "NONE"
    assert browser.ask("GET", f"{PORTS}?id=detail&port=9.9.9")[0] == 404


def test_a_failure_of_an_item_is_told_under_200(device, browser):
    browser.post(f"{CIRCUITS}?id=add", item("1.1.1", "1.1.2"))
    wanted = [item("1.1.3", "1.1.3"), item("1.1.4", "1.1.2"), item("1.1.5", "9.9.9"), item("1.1.6", "1.1.6")]
    results = browser.post(f"{CIRCUITS}?id=badd", wanted)
    assert statuses(results) == ["1", "0", "0", "1"]
    assert "Invalid Connection" in results[1]["response"]["description"]
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
    assert statuses(results) == [str(int(n != failing)) for n in (1, 2)]
    assert browser.post(f"{CIRCUITS}?id=badd", [item(f"1.1.{failing}", f"1.1.{failing}")]) == [DONE_IN_BULK]


def test_an_account_that_may_only_read(device, browser):
    device.do("set_fault", fault="deny_writes")
    assert browser.get(f"{CIRCUITS}?id=list") == []
    for method, target in (("POST", f"{CIRCUITS}?id=badd"), ("DELETE", f"{CIRCUITS}?conn=x")):
        assert browser.ask(method, target, b"[]")[0] == 403
    assert device.do("truth")["fired"]["deny_writes"] == 2


def test_an_ignored_change_is_answered_all_the_same(device, browser):
    device.do("set_fault", fault="drop_command")
    assert browser.post(f"{CIRCUITS}?id=badd", [item("1.1.1", "1.1.1")] * 2) == [DONE_IN_BULK] * 2
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
    assert bool(browser._client.receive()) != lit
    device.advance(0.6)
    assert bool(browser._client.receive()) == lit


def test_a_short_summary_tells_the_names(world):
    summary = Browser(world("calient", size=(SIZE, SIZE), summary="short")).get(f"{PORTS}?id=summary")
    assert [row["port"] for row in summary][:9:8] == ["1.1.1", "1.2.1"]
    assert set(summary[0]) == {"port", "inalias", "outalias", "conn", "connid", "power"}


def test_results_of_a_bulk_are_nested_or_flat_as_the_option_says(world):
    browser = Browser(world("calient", size=(SIZE, SIZE), bulk_results="flat"))
    assert browser.post(f"{CIRCUITS}?id=badd", [item("1.1.1", "1.1.1")]) == [DONE]
    assert browser.post(f"{CIRCUITS}?id=bdel", [{"conn": "1.1.1>1.1.1"}]) == [DONE]


def test_ports_that_are_not_fit_are_told(device, browser):
    device.do("set_fault", fault="fail_port", port=1)
    device.do("set_fault", fault="disable_port", port=SIZE + 2)
    device.do("set_fault", fault="lock_port", port=3)
    rows = browser.get(f"{PORTS}?id=summary")
    assert (rows[0]["inas"], rows[0]["inos"], rows[0]["inoc"], rows[0]["outos"]) == (
        "IS",
        "OOS",
        "FAIL",
        "OOS",
    )
    assert (rows[1]["outas"], rows[2]["inas"]) == ("OOS-MA", "LCK")


@pytest.mark.parametrize(
    ("method", "target", "body", "status"),
    [
        ("GET", f"{CIRCUITS}?id=colour", b"", 400),
        ("GET", f"{PORTS}?id=colour", b"", 400),
        ("GET", "/rest/info/?id=colour", b"", 400),
        ("GET", "/rest/node/", b"", 400),
        ("GET", "/rest/node/?id=summary&detail=COLOUR", b"", 400),
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
    assert statuses(results) == ["0", "1"]
    assert statuses(browser.post(f"{CIRCUITS}?id=bdel", [wrong])) == ["0"]


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
    assert "REPT DBCHG" in (text := client.receive().decode())
    assert "SRCPORT" not in text


# -- what public clients send, and what they read (docs/reference/evidence.md names them)

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def test_a_controller_sets_lists_and_tears_circuits_in_bulk(device, browser):
    """A Ryu application: no content type, two-way items without a name; it reads `response.status` of each."""
    wanted = b'[{"in": "1.1.1", "out": "1.1.2", "dir": "bi"}, {"in": "1.1.3", "out": "1.1.4", "dir": "uni"}]'
    status, _, results = browser.ask("POST", f"{CIRCUITS}?id=badd", wanted)
    assert (status, [item["response"]["status"] for item in results]) == (200, ["1", "1"])
    assert device.truth() == {1: SIZE + 2, 2: SIZE + 1, 3: SIZE + 4}
    rows = browser.ask("GET", f"{CIRCUITS}?id=list")[2]
    assert [row["half1"]["conn"] for row in rows] == ["1.1.1>1.1.2", "1.1.3>1.1.4"]
    results = browser.ask(
        "POST", f"{CIRCUITS}?id=bdel", b'[{"conn": "1.1.1-1.1.2"}, {"conn": "1.1.9>1.1.9"}]'
    )[2]
    assert [item["response"]["status"] for item in results] == ["1", "0"]
    assert device.truth() == {3: SIZE + 4}


def test_a_test_library_adds_by_form_and_deletes_what_its_ports_hold(device, browser):
    """NTT Communications, renat: a form a direction, details as a list of one, results of a single change flat."""

    def circuits(port: str) -> set[str]:
        detail = browser.ask("GET", f"{PORTS}?id=detail&port={port}")[2][0]
        return {detail[side] for side in ("incircuit", "outcircuit")} - {""}

    assert circuits("1.1.1") | circuits("1.1.2") == set()
    for source, target in (("1.1.1", "1.1.2"), ("1.1.2", "1.1.1")):
        body = f"id=add&in={source}&out={target}&dir=uni".encode()
        status, _, results = browser.ask("POST", CIRCUITS, body, **FORM)
        assert (status, results[0]["status"], results[0]["description"]) == (200, "1", "")
    assert device.truth() == {1: SIZE + 2, 2: SIZE + 1}
    held = circuits("1.1.1") | circuits("1.1.2")
    assert held == {"1.1.1>1.1.2", "1.1.2>1.1.1"}
    for name in sorted(held):
        status, _, results = browser.ask("DELETE", f"{CIRCUITS}?conn={name.replace('>', '%3E')}")
        assert (status, results[0]["status"]) == (200, "1")
    assert device.truth() == {}


def test_the_vendors_script_logs_powers_by_cookie(device, browser):
    """Calient's own script: an absolute target, a quoted name, then the cookie alone; `half2` only of two ways."""
    browser.post(f"{CIRCUITS}?id=add", {"in": "1.1.1", "out": "1.1.2", "dir": "uni"})
    target = f"http://192.0.2.1{CIRCUITS}?id=detail&conn=1.1.1%3E1.1.2"
    status, headers, document = browser.ask("GET", target, Accept="application/json")
    cookie = headers["set-cookie"]
    assert (status, "half2" in document[0]) == (200, False)
    assert {"conn", "inp", "outp", "loss"} <= document[0]["half1"].keys()
    only_cookie = type(browser)(device, Cookie=cookie[: cookie.index(";")])
    assert only_cookie.ask("GET", target)[0] == 200


def test_an_inventory_reads_identity_ports_and_circuits(browser):
    """A lab inventory: what the switch is, in four requests; rows of ports with their circuits and power."""
    assert browser.get("/rest/info/?id=restversion")
    version = browser.get("/rest/info/?id=softwareversion")["version"]
    assert [row["version"] for row in browser.get("/rest/node/?id=summary&detail=SOFTWARE")] == [version]
    system = browser.get("/rest/node/?id=summary&detail=SYSCFG")
    assert system["serialnumber"].startswith("SIM")
    assert system["partnumber"] == f"S{SIZE}"
    assert browser.get("/rest/node/?id=summary&detail=HARDWARE")["nodeSysConfigInfo"] == system
    browser.post(
        f"{CIRCUITS}?id=add", {"in": "1.1.1", "out": "1.1.2", "group": "SYSTEM", "conn": None, "dir": "bi"}
    )
    rows = {row["port"]: row for row in browser.get(f"{PORTS}?id=summary")}
    assert [rows[f"1.1.{n}"]["conn"] for n in (1, 2, 3)] == ["1.1.1-1.1.2", "1.1.1-1.1.2", ""]
    assert {"connid", "power", "inalias", "outalias"} <= rows["1.1.1"].keys()


def test_an_inventory_changes_circuits(device, browser):
    """The same: single and bulk additions, deletion, activation and deactivation by query without a body."""
    light = {"nolight": "true", "deadreckon": "false", "band": "O"}
    browser.post(
        f"{CIRCUITS}?id=add", {"in": "1.1.1", "out": "1.1.2", "group": "SYSTEM", "dir": "bi", **light}
    )
    assert device.truth() == {1: SIZE + 2, 2: SIZE + 1}
    about = "conn=1.1.1-1.1.2&group=SYSTEM&name=1.1.1-1.1.2"
    for verb, made in (("deactivate", {}), ("activate", {1: SIZE + 2, 2: SIZE + 1})):
        assert browser.ask("POST", f"{CIRCUITS}?id={verb}&{about}", **JSON)[0] == 200
        assert device.truth() == made
    assert browser.ask("DELETE", f"{CIRCUITS}?id=delete&{about}", **JSON)[0] == 200
    assert device.truth() == {}
    browser.post(f"{CIRCUITS}?id=badd", [{"in": "1.1.3", "out": "1.1.4", "conn": "1.1.3>1.1.4"}])
    assert browser.ask("POST", f"{CIRCUITS}?id=deleteall", b"{}", **JSON)[0] == 200
    assert device.truth() == {}


def test_an_inventory_tells_a_read_only_account_by_403(device, browser):
    device.do("set_fault", fault="deny_writes")
    status, _, text = browser.ask("POST", f"{CIRCUITS}?id=deleteall", b"{}", **JSON)
    assert (status, text) == (403, "this account may only read")
