"""Requests that fit the OpenAPI document, and others, get answers that it describes: cases of schemathesis."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from libraries import library, skip_without

skip_without("fastapi")
skip_without("httpx")
skip_without("requests")
schemathesis = library("schemathesis")

import httpx

from testbed.service import gate as doors
from testbed.service import labs, metrics
from testbed.service.application import build_app
from testbed.service.gate import Gate
from testbed.service.route_table import ROUTES

ASKED = [route for route in ROUTES if route.path != "/v1/events"]
"""All routes but the stream, which has no end."""
KNOWN = {"lab": "testbed12", "host": "a", "switch": "ocs1", "epoch": "1"}
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)


@pytest.fixture
def asked(service, monkeypatch):
    """Provide a function that asks an operation of the document so often, and what answers there were."""
    from schemathesis.checks import CHECKS as KNOWN_CHECKS
    from schemathesis.checks import load_all_checks

    monkeypatch.setattr(labs, "_find_outage", lambda lab: "")  # /readyz is 200, and no switch is asked
    monkeypatch.setattr(metrics, "_read_switches", lambda view: ())
    monkeypatch.setattr(doors, "MAX_ATTEMPTS", 10_000)
    load_all_checks()
    checks = [KNOWN_CHECKS.get_one(name) for name in CHECKS]
    app = build_app(service)
    schema, gate = schemathesis.openapi.from_dict(app.openapi()), Gate(app, service, service.tokens.identify)
    _, token = service.tokens.create("ann", "admin", lifetime=timedelta(hours=1))
    met: Counter[int] = Counter()

    async def send(request):
        transport = httpx.ASGITransport(gate, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.request(
                request.method, request.url, content=request.body, headers=request.headers
            )

    def ask(route, examples):
        operation = schema[route.path][route.method.lower()]

        @settings(max_examples=examples, suppress_health_check=list(HealthCheck), deadline=None)
        @given(case=cases(operation, route), is_known=st.sampled_from([True, True, True, False]))
        def one(case, is_known):
            if is_known:
                case.headers["Authorization"] = f"Bearer {token}"
            response = runner.run(send(prepared(case)))
            met[response.status_code] += 1
            case.validate_response(response, checks=checks)

        one()

    with asyncio.Runner() as runner:
        yield ask, met


def cases(operation, route):
    """Return cases of an operation: those that fit the document, with names that there are or any, and others."""
    mode = schemathesis.GenerationMode
    names = {name: text for name, text in KNOWN.items() if f"{{{name}}}" in route.path}
    return st.one_of(
        operation.as_strategy(path_parameters=names).map(of_our_lab),
        operation.as_strategy(path_parameters=names).map(
            lambda case: with_body(case, GOOD.get(route.handler.__name__))
        ),
        operation.as_strategy(),
        operation.as_strategy(generation_mode=mode.NEGATIVE),
    )


GOOD = {
    "submit_run": {"command": "history", "lab": KNOWN["lab"]},
    "request_lease": {"resources": ["host:a"]},
    "set_topology": {"simplex": True},
}
"""Bodies that are accepted: of those that are drawn, too few are."""


def with_body(case, body):
    """Return a case with this body, if there is one."""
    if body is not None:
        case.body = body
    return case


def of_our_lab(case):
    """Return a case whose body is about the lab that there is."""
    if isinstance(case.body, dict) and "lab" in case.body:
        case.body["lab"] = KNOWN["lab"]
    return case


def prepared(case):
    """Return a case as the bytes of its request."""
    import requests

    return requests.Request(
        **{
            name: value
            for name, value in case.as_transport_kwargs(base_url="http://service").items()
            if name in ("method", "url", "headers", "params", "cookies", "data", "json", "files")
        }
    ).prepare()


@pytest.mark.slow
def test_any_request_gets_an_answer_that_is_described(asked):
    ask, met = asked
    for route in ASKED:
        ask(route, 2 if route.is_read_only else 12)

    assert {200, 401, 404, 422} <= set(met), met
    assert met[201] + met[202] > 2, met
    assert met[200] > 20, met


@pytest.mark.long
@pytest.mark.parametrize("route", ASKED, ids=lambda route: f"{route.method} {route.path}")
def test_many_requests_of_a_route_get_answers_that_are_described(asked, route):
    ask, met = asked
    ask(route, 300)

    assert met.total() > 1
