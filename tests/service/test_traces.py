"""Traces of a change of a lab: exchanges in steps in operations in runs, sent where the environment says."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("opentelemetry.sdk")
skip_without("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from testbed.cli.app import run_app
from testbed.log_context import about
from testbed.observe.traces import trace_to

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def spans():
    """Provide the spans that have ended, when it is called."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    stop = trace_to(provider)
    yield exporter.get_finished_spans
    stop()
    provider.shutdown()


def chain(span, spans):
    """Return the names of a span and of those that it lies in, from the inside out."""
    by_id = {one.context.span_id: one for one in spans}
    names = [span.name]
    while span.parent is not None:
        span = by_id[span.parent.span_id]
        names.append(span.name)
    return names


@pytest.mark.long
def test_an_apply_is_one_trace_from_the_run_to_the_exchanges(up, tmp_path, spans, capsys):
    words = ["apply", str(up[1]), "--hosts", "model", "--runs-dir", str(tmp_path / "runs"), "--json"]
    with about(run="r1"):
        assert run_app(words) == 0

    found = spans()
    assert len({one.context.trace_id for one in found}) == 1
    chains = {tuple(chain(one, found)) for one in found}
    assert ("exchange", "step", "operation", "run") in chains
    assert {one[-1] for one in chains} == {"run"}
    (run,) = [one for one in found if one.name == "run"]
    (operation,) = [one for one in found if one.name == "operation"]
    (step,) = [one for one in found if one.name == "step"]
    assert run.attributes["lightbed.run"] == "r1"
    assert operation.attributes["lightbed.operation"]
    assert operation.attributes["lightbed.lease"]
    assert step.attributes["lightbed.device"] == "ocs1"
    within = [one for one in found if one.parent and one.parent.span_id == step.context.span_id]
    assert any("CONN" in one.attributes["lightbed.sent"].upper() for one in within)
    assert all(step.start_time <= one.start_time <= one.end_time <= step.end_time for one in within)


def test_an_operation_that_fails_says_so(spans):
    with pytest.raises(ValueError, match="dark"), about(operation="o1"):
        raise ValueError("it is dark")

    (span,) = spans()
    assert (span.name, span.status.status_code.name) == ("operation", "ERROR")


def test_exchanges_end_with_the_answer_or_with_what_is_sent_next(spans):
    from ocs_drivers.transports import wire

    wire.log_sent("ocs1", "*IDN?\n")
    wire.log_sent("ocs1", "ACT-USER::admin:1::secret;")
    wire.log_received("ocs1", b"ok\n")
    wire.log_received("ocs1", b"more\n")

    assert [one.attributes["lightbed.sent"] for one in spans()] == ["*IDN?", "ACT-USER::admin:1::***;"]


def test_blocks_make_no_spans_when_nobody_traces(spans, tmp_path):
    from testbed import log_context

    log_context.set_block_context(None)
    with about(run="r2"):
        pass

    assert spans() == ()


@pytest.mark.process
def test_nothing_of_opentelemetry_is_imported_unless_it_is_asked_for(tmp_path):
    code = "import sys; from testbed.cli.app import run_app; run_app(['history', 'labs/testbed12.yaml'])"
    code += "; assert not [one for one in sys.modules if 'opentelemetry' in one or 'traces' in one]"
    environment = {name: text for name, text in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment | {"LIGHTBED_RUNS": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_traces_are_sent_where_the_environment_says(up, tmp_path):
    received = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        known = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
        known |= {"PYTHONPATH": str(ROOT), "LIGHTBED_RUNS": str(tmp_path / "runs")}
        words = [sys.executable, "-m", "testbed.cli", "plan", str(up[1])]
        done = subprocess.run(
            words, env=os.environ | known, capture_output=True, text=True, check=False, timeout=200
        )
        server.shutdown()
        thread.join()

    assert done.returncode in (0, 2), done.stderr
    assert {path for path, _ in received} == {"/v1/traces"}
    sent = b"".join(body for _, body in received)
    assert b"exchange" in sent
    assert b"lightbed.address" in sent
