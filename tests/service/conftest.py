"""A service in memory, asked without a socket, and one that is a process of its own."""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from libraries import skip_without
from needs import needs
from service_process import Process

skip_without("fastapi")
skip_without("httpx")
skip_without("sqlalchemy")

import httpx

from testbed.lab.inventory import load_lab, render_lab
from testbed.service import labs
from testbed.service.application import build_app
from testbed.service.gate import Gate
from testbed.service.runs import MAX_QUEUED_RUNS
from testbed.service.server import make_service

ROOT = Path(__file__).resolve().parents[2]
TESTBED12 = ROOT / "labs" / "testbed12.yaml"


@contextmanager
def service_in(folder, most_queued=MAX_QUEUED_RUNS):
    """Make a service of one lab that is down; its workers and its feed are not started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labs, "_find_outage", lambda lab: f"no simulated lab '{lab.name}' is up")
        service = make_service([TESTBED12], folder / "runs", max_queued_runs=most_queued)
        yield service
        service.database.close()


@pytest.fixture
def service(tmp_path):
    """Make a service of its own for a test."""
    with service_in(tmp_path) as service:
        yield service


@pytest.fixture(scope="module")
def standing(tmp_path_factory):
    """Make a service that tests of a module share: whatever they ask, its answers to others stay the same."""
    with service_in(tmp_path_factory.mktemp("standing"), most_queued=10_000) as service:
        yield SimpleNamespace(service=service, ask=asker(service), token_of=token_maker(service))


@pytest.fixture
def token_of(service):
    """Return a function that makes a token."""
    return token_maker(service)


@pytest.fixture
def ask(service):
    """Return a function that asks the service in memory."""
    return asker(service)


def token_maker(service):
    """Return a function that makes a token."""

    def make(role: str, **limits: Any) -> str:
        _, text = service.tokens.create(role, role, lifetime=timedelta(hours=1), **limits)
        return text

    return make


def asker(service):
    """Return a function that asks the service in memory: application and gate, without a socket."""
    app = Gate(build_app(service), service, service.tokens.identify)

    def send(method: str, path: str, token: str = "", **more: Any) -> httpx.Response:
        async def once() -> httpx.Response:
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                headers = {
                    **({"Authorization": f"Bearer {token}"} if token else {}),
                    **more.pop("headers", {}),
                }
                return await client.request(method, path, headers=headers, **more)

        return asyncio.run(once())

    return send


@pytest.fixture(scope="module")
@needs("process", "socket")
def up(tmp_path_factory):
    """Provide a lab of modelled hosts that is up, with its file: its name is its own."""
    from testbed.lab.simulated.lifecycle import start_lab

    named = tmp_path_factory.mktemp("named") / "lab.yaml"
    text = TESTBED12.read_text(encoding="utf-8")
    assert "name: testbed12" in text
    named.write_text(text.replace("name: testbed12", f"name: shared{os.getpid()}"), encoding="utf-8")
    with start_lab(load_lab(named), hosts="model", may_move=True) as lab:
        path = tmp_path_factory.mktemp("lab") / "lab.yaml"
        path.write_text(render_lab(lab.lab), encoding="utf-8")
        yield lab, path


@pytest.fixture(scope="module")
@needs("process", "socket")
def running(up, tmp_path_factory):
    """Start a service of that lab as a process."""
    process = Process(up[1], tmp_path_factory.mktemp("service") / "runs")
    process.start()
    yield process
    assert process.end() == 0
