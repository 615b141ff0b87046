"""Any request whatever gets an answer that the OpenAPI document describes, and never an error of ours."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from libraries import skip_without

skip_without("fastapi")
skip_without("httpx")
skip_without("jsonschema")

import httpx
import jsonschema

from testbed.service.application import build_app
from testbed.service.gate import Gate
from testbed.service.route_table import ROUTES

LOOKED_AT = [route for route in ROUTES if route.path not in ("/v1/events", "/readyz")]
ASKED = [
    *LOOKED_AT,
    *(route for route in LOOKED_AT if not route.is_looking),
    *(route for route in LOOKED_AT if route.method == "POST"),
]
TEXTS = st.text(max_size=12) | st.sampled_from(
    ["testbed12", "host:a", "apply", "on", "10m", "-1", "--help", "../x", "a/b"]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
FIELDS = [
    *(
        "command",
        "lab",
        "why",
        "text",
        "simplex",
        "method",
        "demand",
        "plan_file",
        "epoch",
        "hosts",
        "lease",
        "change",
    ),
    *(
        "resources",
        "ttl_s",
        "priority",
        "starts_s",
        "allowed",
        "note",
        "reason",
        "source",
        "target",
        "operation",
        "to",
    ),
    *(
        "really_move",
        "confirm_within",
        "take_over",
        "wait",
        "ttl",
        "at",
        "last",
        "ended",
        "patches",
        "expect",
    ),
]
COMMANDS = [
    "plan",
    "apply",
    "verify",
    "path",
    "drift",
    "repair",
    "resume",
    "rollback",
    "confirm",
    "history",
    "lease list",
]
BODIES = st.builds(
    lambda told, command, lab: {
        **({"command": command} if command else {}),
        **({"lab": lab} if lab else {}),
        **told,
    },
    st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=2),
    st.sampled_from([None, *COMMANDS]),
    st.sampled_from([None, "testbed12", "testbed12", "other"]),
)
VALID = [
    {"command": "history", "lab": "testbed12"},
    {"command": "apply", "lab": "testbed12", "simplex": True},
    {"resources": ["host:a"]},
    {"reason": "a test"},
    {},
]
LABS = st.sampled_from([*["testbed12"] * 6, "other", "%00", "é"])
OTHERS = st.sampled_from(["a", "ocs1", "1", "none", "999999999999999999999", "-1", "%2F"])
NAMES = st.fixed_dictionaries(
    {"lab": LABS} | dict.fromkeys(("host", "switch", "epoch", "lease", "run"), OTHERS)
)
HEADERS = st.dictionaries(
    st.sampled_from(["If-Match", "Idempotency-Key", "Last-Event-ID", "Content-Type", "Accept"]),
    st.sampled_from(["*", '"x"', "application/json", "text/plain", "7", "\x7f", "é", ""]),
    max_size=2,
)


@pytest.fixture
def service_and_token(service):
    _, text = service.tokens.create("ann", "admin", lifetime=timedelta(hours=1))
    return service, text


@pytest.mark.slow
def test_any_request_gets_an_answer_that_is_described(service_and_token):
    service, token = service_and_token
    app = build_app(service)
    document, gate = app.openapi(), Gate(app, service, service.tokens.identity)
    met: Counter[int] = Counter()
    validators = {}

    def check(route, response):
        described = document["paths"][route.path][route.method.lower()]["responses"]
        met[response.status_code] += 1
        unrouted = response.status_code in (
            404,
            405,
        )  # a name that is empty or has a slash leads to another path
        assert response.status_code < 500, response.text
        assert str(response.status_code) in described or unrouted, (
            route.path,
            response.status_code,
            response.text,
        )
        kind = response.headers["content-type"]
        assert kind == ("application/json" if response.is_success else "application/problem+json")
        name = route.answer.__name__ if response.is_success and route.answer else "Problem"
        if response.is_error or route.answer:
            if name not in validators:
                schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
                validators[name] = jsonschema.Draft202012Validator(schema)
            validators[name].validate(response.json())

    @settings(max_examples=150, suppress_health_check=list(HealthCheck), deadline=None)
    @given(
        route=st.sampled_from(ASKED),
        names=NAMES,
        params=st.dictionaries(
            st.sampled_from(["limit", "state", "lab", "ended", "command"]), TEXTS, max_size=2
        ),
        headers=HEADERS,
        body=st.sampled_from(VALID) | st.sampled_from(VALID) | st.none() | BODIES | JSON,
        raw=st.sampled_from([None, None, None, None, b"{", b"\xff", b"[1"]),
        is_known=st.sampled_from([True, True, True, False]),
    )
    def ask(route, names, params, headers, body, raw, is_known):
        told = {name: text.encode("latin-1", "replace") for name, text in headers.items()}
        if is_known:
            told["Authorization"] = f"Bearer {token}".encode()
        content = raw if raw is not None else (None if body is None else json.dumps(body).encode())
        if content is not None:
            told.setdefault("Content-Type", b"application/json")

        async def once():
            transport = httpx.ASGITransport(gate, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                path = route.path.format(**names)
                return await client.request(route.method, path, headers=told, params=params, content=content)

        check(route, asyncio.run(once()))

    ask()

    assert {200, 401, 404, 422} <= set(met), met
    assert met[201] + met[202] > 3, met
    assert met[200] > 20
    assert met[422] > 5
