"""Every route against every role, from the one table of both."""

from __future__ import annotations

import pytest
from libraries import skip_without

skip_without("fastapi")
skip_without("httpx")
skip_without("sqlalchemy")

from testbed.service.access import ROLES
from testbed.service.requests import get_command, list_models
from testbed.service.route_table import ROUTES
from testbed.service.workers import get_run_folder
from testbed.storage.address import get_database_address
from testbed.storage.audit import read_audit

NAMES = {
    "lab": "testbed12",
    "host": "a",
    "switch": "ocs1",
    "epoch": "1",
    "lease": "none",
    "run": "none",
    "file": "none",
}
BODIES = {
    "submit_run": {"command": "history", "lab": "testbed12"},
    "request_lease": {"resources": ["host:a"]},
    "break_lease": {"reason": "a test"},
    "set_maintenance": {"reason": "a test"},
    "stop_lab": {"reason": "a test"},
    "extend_lease": {},
    "set_topology": {},
}
by_route = pytest.mark.parametrize(
    "route",
    [route for route in ROUTES if route.path not in ("/v1/events", "/readyz")],
    ids=lambda route: f"{route.method} {route.path}",
)


def call(ask, route, token="", **more):
    body = BODIES.get(route.handler.__name__)
    return ask(route.method, route.path.format(**NAMES), token, json=body, **more)


@pytest.mark.slow
@by_route
def test_a_role_may_what_the_table_says_and_no_more(standing, route):
    ask, token_of = standing.ask, standing.token_of
    told = {role: call(ask, route, token_of(role)).status_code for role in ROLES}
    told["nobody"] = call(ask, route).status_code

    may = {role: route.role is None or ROLES.index(role) >= ROLES.index(route.role) for role in ROLES}
    refused = {role: status == 403 for role, status in told.items() if role != "nobody"}
    assert refused == {role: not may[role] for role in ROLES}
    is_free = route.role is None or (route.is_read_only and route.role == "viewer")
    assert (told["nobody"] in (401, 403)) == (not is_free)
    assert max(told.values()) < 500


@by_route
def test_a_service_that_is_not_open_tells_nothing_without_a_token(standing, monkeypatch, route):
    monkeypatch.setattr(standing.service, "is_open", False)

    assert (call(standing.ask, route).status_code == 401) == (route.role is not None)


@pytest.mark.slow
@pytest.mark.parametrize("request_model", list_models(), ids=get_command)
def test_a_command_needs_its_role(standing, request_model):
    body = {
        "command": get_command(request_model),
        "lab": "testbed12",
        "lease": "none",
        "reason": "a test",
        "to": "on",
    }
    body |= {"source": "a", "target": "b", "statement": "select 1", "run_id": "last", "switch": "ocs1"}
    body |= {"a": "last", "b": "last", "pairs": ["1:49"], "inputs": ["1"], "what": "open", "named": ["1"]}
    body |= {"program": ["hostname"]} if body["command"] == "run" else {}
    body = {name: value for name, value in body.items() if name in request_model.model_fields}

    told = {
        role: standing.ask("POST", "/v1/runs", standing.token_of(role), json=body).status_code
        for role in ROLES
    }

    least = ROLES.index(request_model.role)
    assert told == {role: 202 if at >= least else 403 for at, role in enumerate(ROLES)}


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/v1/runs", "/v1/labs/testbed12/leases", "/v1/labs/testbed12/stop"])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_token_is_looked_at_before_a_body(ask, method, path):
    told = ask(method, path, content=b"{ not json", headers={"content-type": "application/json"})

    assert told.status_code in (401, 405)
    assert told.headers["content-type"] == "application/problem+json"


@pytest.mark.slow
@pytest.mark.parametrize(
    "route", [one for one in ROUTES if not one.is_read_only], ids=lambda one: one.handler.__name__
)
def test_every_change_that_is_refused_is_in_the_audit_log(service, ask, route):
    call(ask, route)

    (*_, entry) = read_audit(get_database_address(service.runs_dir))
    assert (entry["who"], entry["outcome"]) == ("anonymous", "refused: service.authentication")


def test_a_command_that_is_refused_is_in_the_audit_log(service, ask, token_of):
    body = {"command": "apply", "lab": "testbed12", "why": "a try"}

    assert ask("POST", "/v1/runs", token_of("viewer"), json=body).status_code == 403

    (*_, entry) = read_audit(get_database_address(service.runs_dir))
    told = [entry[name] for name in ("who", "action", "lab", "why", "outcome")]
    assert told == ["viewer", "run apply", "testbed12", "a try", "refused: service.role"]


def test_scopes_and_labs_limit_a_token(ask, token_of):
    reader, other = token_of("admin", scopes=["runs:read"]), token_of("admin", labs=["elsewhere"])

    assert ask("GET", "/v1/runs", reader).status_code == 200
    assert ask("GET", "/v1/audit", reader).status_code == 403
    assert ask("GET", "/v1/labs/testbed12", other).status_code == 403
    assert ask("GET", "/v1/labs", other).json() == {"labs": []}
    of_everything = {"command": "runs query", "statement": "from runs"}
    for body in ({"command": "plan", "lab": "testbed12"}, {"command": "runs"}, of_everything):
        assert ask("POST", "/v1/runs", other, json=body).status_code == 403


def test_metrics_of_a_lab_need_a_token_for_it(ask, token_of):
    other, ours = token_of("viewer", labs=["elsewhere"]), token_of("viewer", labs=["testbed12"])
    body = {"command": "metrics", "labs": ["testbed12"]}

    assert [ask("POST", "/v1/runs", token, json=body).status_code for token in (other, ours)] == [403, 202]


def test_a_switch_that_a_lab_does_not_have_is_refused(ask, token_of):
    body = {"command": "switch read", "lab": "testbed12", "switch": "elsewhere"}
    told = ask("POST", "/v1/runs", token_of("operator"), json=body)

    assert (told.status_code, told.json()["code"]) == (422, "service.request")
    assert "it has ocs1" in told.json()["detail"]


@pytest.mark.parametrize("file", ["change.json", "lab.yaml", "process.log", "..%2F..%2Flightbed.sqlite"])
def test_only_files_that_a_command_wrote_are_there_to_fetch(service, ask, token_of, file):
    body = {"command": "plan", "lab": "testbed12", "out": True}
    run = ask("POST", "/v1/runs", token_of("operator"), json=body).json()["id"]
    folder = get_run_folder(service.runs_dir, run)
    folder.mkdir(parents=True)
    for name in ("change.json", "process.log"):
        (folder / name).write_text("written", encoding="utf-8")

    told = ask("GET", f"/v1/runs/{run}/files/{file}", token_of("viewer"))

    assert told.status_code == (200 if file == "change.json" else 404)
    other = ask("GET", f"/v1/runs/{run}/files/{file}", token_of("viewer", labs=["elsewhere"]))
    assert other.status_code in (403, 404)


@pytest.mark.slow
def test_what_an_audit_tells_is_for_admins_with_its_scope(ask, token_of):
    body = {"command": "audit"}
    run = ask("POST", "/v1/runs", token_of("admin"), json=body).json()["id"]

    told = {role: ask("GET", f"/v1/runs/{run}", token_of(role)).status_code for role in ROLES}

    assert told == {"viewer": 403, "operator": 403, "developer": 403, "admin": 200}
    narrow = token_of("admin", scopes=["runs:read", "runs:write"])
    assert ask("POST", "/v1/runs", narrow, json=body).status_code == 403


def test_a_command_of_a_lab_needs_its_name(ask, token_of):
    told = ask("POST", "/v1/runs", token_of("admin"), json={"command": "apply", "lab": ""})

    assert told.status_code == 422
