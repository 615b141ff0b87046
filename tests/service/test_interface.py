"""The interface as its document describes it: kept in the repository, problems from one table, ETag and keys."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from libraries import skip_without

skip_without("fastapi")
skip_without("httpx")
skip_without("sqlalchemy")

import ocs_drivers.errors
import testbed.errors
import testbed.operation_errors
import testbed.service_errors
from testbed.service import gate
from testbed.service.access import Identity
from testbed.service.application import API_VERSION, render_interface
from testbed.service.events import EventFilter, EventLog, Feed
from testbed.service.problems import find_status
from testbed.service.route_table import ROUTES
from testbed.storage.address import get_database_address
from testbed.storage.audit import read_audit

KEPT = Path(__file__).resolve().parents[2] / "docs" / "reference" / "openapi.json"


@pytest.mark.slow
def test_the_document_in_the_repository_is_that_of_the_service(service):
    """A change of the interface is a new version of it: `python -m tools.openapi` writes the file, or refuses."""
    assert KEPT.read_text(encoding="utf-8") == render_interface(service)
    assert json.loads(KEPT.read_text(encoding="utf-8"))["info"]["version"] == API_VERSION


def test_the_tool_refuses_a_change_without_a_version(tmp_path):
    from tools.openapi import write

    path = tmp_path / "openapi.json"
    write(path, '{"info": {"version": "1.0.0"}}\n')
    write(path, '{"info": {"version": "1.0.0"}}\n')
    with pytest.raises(SystemExit, match="API_VERSION"):
        write(path, '{"info": {"version": "1.0.0"}, "paths": {}}\n')
    write(path, '{"info": {"version": "1.1.0"}, "paths": {}}\n')
    assert "paths" in path.read_text()


@pytest.mark.slow
def test_every_route_is_described_with_who_may(ask):
    document = ask("GET", "/openapi.json").json()

    described = {
        (method.upper(), path): told["x-role"]
        for path, methods in document["paths"].items()
        for method, told in methods.items()
    }
    assert described == {(route.method, route.path): route.role or "none" for route in ROUTES}


def kinds(module):
    return [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Exception)]


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for module in (ocs_drivers.errors, testbed.errors, testbed.operation_errors, testbed.service_errors)
        for kind in kinds(module)
    ],
    ids=lambda kind: kind.__name__,
)
def test_every_error_has_a_status(kind):
    assert find_status(kind) in {401, 403, 404, 409, 412, 422, 423, 428, 429, 500, 502}


def test_a_refusal_of_the_toolkit_is_a_problem_with_its_code(ask, token_of):
    told = ask("POST", "/v1/labs/testbed12/leases", token_of("operator"), json={"resources": ["host:nobody"]})

    assert told.headers["content-type"] == "application/problem+json"
    assert (told.status_code, told.json()["code"]) == (422, "lease.impossible")
    assert told.json()["instance"] == "/v1/labs/testbed12/leases"


def test_a_lease_is_changed_only_in_the_state_that_was_seen(ask, token_of):
    ann = token_of("operator")
    made = ask("POST", "/v1/labs/testbed12/leases", ann, json={"resources": ["host:a"], "reason": "a ring"})
    assert made.status_code == 201
    path, tag = made.headers["location"], made.headers["etag"]
    assert ask("GET", path).headers["etag"] == tag
    assert made.json()["owner"] == "operator"

    assert ask("PATCH", path, ann, json={"ttl_s": 9000}).status_code == 428
    assert ask("PATCH", path, ann, json={"ttl_s": 9000}, headers={"If-Match": '"other"'}).status_code == 412
    extended = ask("PATCH", path, ann, json={"ttl_s": 9000}, headers={"If-Match": tag})
    assert extended.status_code == 200
    assert ask("DELETE", path, ann, headers={"If-Match": tag}).status_code == 412
    released = ask("DELETE", path, ann, headers={"If-Match": extended.headers["etag"]})
    assert released.json()["state"] == "released"


def test_somebody_elses_lease_is_not_released_but_broken_with_a_reason(ask, token_of):
    path = ask("POST", "/v1/labs/testbed12/leases", token_of("operator"), json={}).headers["location"]

    refused = ask("DELETE", path, token_of("developer"), headers={"If-Match": "*"})
    broken = ask("POST", f"{path}/break", token_of("admin"), json={"reason": "a fire"})

    assert (refused.status_code, refused.json()["code"]) == (409, "lease.denied")
    assert broken.json()["reason"] == "a fire (by admin)"


def test_a_key_is_one_run_however_often_it_is_sent(service, ask, token_of):
    ann, body = token_of("operator"), {"command": "plan", "lab": "testbed12", "why": "look"}
    headers = {"Idempotency-Key": "k1"}

    told = [ask("POST", "/v1/runs", ann, json=body, headers=headers) for _ in range(3)]
    other = ask("POST", "/v1/runs", ann, json=body | {"simplex": True}, headers=headers)

    assert {one.headers["location"] for one in told} == {f"/v1/runs/{told[0].json()['id']}"}
    assert (other.status_code, other.json()["code"]) == (409, "service.key")
    assert len(service.runs.list_runs()) == 1
    (*_, entry) = read_audit(get_database_address(service.runs_dir))
    assert (entry["who"], entry["action"], entry["why"]) == ("operator", "run plan", "look")


def test_a_topology_is_asked_for_in_place_of_the_one_that_was_seen(service, ask, token_of):
    ann, path = token_of("operator"), "/v1/labs/testbed12/topology"
    seen = ask("GET", path)
    assert seen.json()["epoch"] == 0

    refused = ask("PUT", path, ann, json={"simplex": True}, headers={"If-Match": '"old"'})
    asked = ask("PUT", path, ann, json={"simplex": True}, headers={"If-Match": seen.headers["etag"]})

    assert refused.status_code == 412
    assert asked.status_code == 202
    assert service.runs.get(asked.json()["id"]).command == "apply"


def test_a_plan_that_is_brought_is_told_in_the_audit_log(service, ask, token_of):
    body = {"command": "apply", "lab": "testbed12", "plan_file": '{"a": "plan"}'}
    ask("POST", "/v1/runs", token_of("operator"), json=body)

    (*_, entry) = read_audit(get_database_address(service.runs_dir))
    assert len(entry["plan"]) == 64


def test_anybody_with_a_token_stops_a_lab_and_an_operator_lets_it_go(ask, token_of):
    viewer, path = token_of("viewer"), "/v1/labs/testbed12/stop"

    stopped = ask("PUT", path, viewer, json={"reason": "hands in the rack"})

    told = {
        "lab": "testbed12",
        "stopped": True,
        "reason": "hands in the rack",
        "running": [],
        "unfinished": [],
    }
    assert stopped.json() == told
    assert ask("GET", "/v1/labs/testbed12").json()["stopped"] is True
    assert ask("DELETE", path, viewer).status_code == 403
    assert ask("DELETE", path, token_of("operator")).json()["was_stopped"] is True


def test_a_body_that_is_too_large_is_refused(ask, token_of):
    told = ask("POST", "/v1/runs", token_of("operator"), json={"why": "x" * (9 << 20)})

    assert told.status_code == 413


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("PUT", "/v1/runs", 405),
        ("GET", "/v1/labs/none", 404),
        ("HEAD", "/v1/labs", 405),
    ],
)
def test_what_is_not_there_is_a_problem(ask, method, path, status):
    told = ask(method, path)

    assert (told.status_code, told.headers["content-type"]) == (status, "application/problem+json")


def test_an_answer_never_repeats_a_token(ask, token_of):
    secret = token_of("operator")
    told = ask("GET", f"/v1/labs/{secret}", secret)

    assert told.status_code == 404
    assert secret not in told.text


@pytest.mark.socket
def test_the_service_runs_on_uvloop(service, monkeypatch):
    """Its connections send at once; those of asyncio's own loop wait for acknowledgements, 40 ms for each answer."""
    from testbed.service import server

    loops = []

    async def note(_server, sockets):
        loops.append(type(asyncio.get_running_loop()).__module__)

    monkeypatch.setattr(server._Server, "serve", note)
    server.serve(service, server.Listener(), on_ready=lambda url: None)

    assert loops == ["uvloop"]


# ------------------------------------------------------------------------------------------ limits
def test_a_token_for_one_lab_pages_through_what_it_may_see(service, ask, token_of):
    other, limited = Identity("eve", "operator"), token_of("admin", labs=["testbed12"])
    ours, _ = service.runs.submit(other, "testbed12", "history", '{"command": "history", "lab": "testbed12"}')
    for _ in range(5):
        service.runs.submit(other, "elsewhere", "history", '{"command": "history", "lab": "elsewhere"}')

    runs = ask("GET", "/v1/runs?limit=2", limited).json()["runs"]
    entries = ask("GET", "/v1/audit?limit=2", limited).json()["entries"]

    assert [one["id"] for one in runs] == [ours.id]
    assert [one["outcome"] for one in entries] == [f"run {ours.id}"]


def test_what_a_token_may_ask_for_it_may_read(ask, token_of):
    limited = token_of("viewer", labs=["testbed12"])
    answer = ask("POST", "/v1/runs", limited, json={"command": "metrics", "labs": ["testbed12"]})
    assert ask("GET", f"/v1/runs/{answer.json()['id']}", limited).status_code == 200
    assert (
        ask("GET", f"/v1/runs/{answer.json()['id']}", token_of("viewer", labs=["other"])).status_code == 403
    )


def test_ten_wrong_tokens_of_an_address_keep_out_others_for_a_minute(ask, token_of, monkeypatch):
    now_s = [1000.0]
    monkeypatch.setattr(gate, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    known = token_of("viewer")

    def status(token):
        return ask("GET", "/v1/runs", token).status_code

    assert status(known) == 200
    assert [status("wrong") for _ in range(12)] == [401] * 10 + [429] * 2
    now_s[0] += 30
    assert (status(known), status(token_of("viewer"))) == (200, 429)
    now_s[0] += 31
    assert status("wrong") == 401


@pytest.mark.parametrize("after", [None, 0, 10**12])
def test_a_stream_begins_with_a_snapshot_unless_its_number_is_one_of_ours(service, after):
    async def first():
        service.feed = Feed(EventLog(service.database))
        await service.feed.skip_stored_events()
        stream = service.feed.stream(EventFilter(), after)
        try:
            return await anext(stream)
        finally:
            await stream.aclose()

    text = asyncio.run(first())
    assert (b"event: snapshot" in text) is (after != 0)
