"""Parts of a load: times, inputs, requests as bytes, figures."""

import json
import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lightning.errors import DatasetError
from lightning.load.http_messages import (
    ModelInput,
    encode_requests,
    find_message_length,
    parse_input,
    parse_reply,
)
from lightning.load.inputs import load_rows, make_rows
from lightning.load.outcome import BUCKETS_PER_DECADE, NOT_HAPPENED, Outcome, make_log_histogram, make_traces
from lightning.load.schedule import draw_schedule
from lightning.load.targets import LoadError, Target, parse_target

SERVER = Target("http", "127.0.0.1", 80)


def test_gaps_are_exponential():
    stats = pytest.importorskip("scipy.stats", reason="the test of the distribution is scipy's")
    gaps = np.diff(draw_schedule(2000, 5, seed=4)) / 1e9
    assert len(gaps) > 9000
    assert stats.kstest(gaps, "expon", args=(0, 1 / 2000)).pvalue > 0.001
    assert stats.kstest(gaps, "uniform", args=(0, 1 / 1000)).pvalue < 1e-9


def test_a_schedule_is_its_seed():
    one, same, other = (draw_schedule(500, 2, seed) for seed in (1, 1, 2))
    assert one.tolist() == same.tolist() != other.tolist()
    assert (np.diff(one) >= 0).all()
    assert one[-1] < 2e9


@pytest.mark.parametrize(("rate", "seconds"), [(0, 1), (-1, 1), (1, 0), (float("nan"), 1), (float("inf"), 1)])
def test_no_load_is_refused(rate, seconds):
    with pytest.raises(LoadError):
        draw_schedule(rate, seconds, 0)


@pytest.mark.parametrize(
    "url", ["ftp://a:1", "http://a", "udp://:5", "a:5", "http://a:99999", "http://a:5/v2", ""]
)
def test_addresses_that_are_none(url):
    with pytest.raises(LoadError):
        parse_target(url)


def test_addresses():
    assert parse_target("http://[::1]:8080").url == "http://[::1]:8080"
    assert parse_target("http://localhost:8080/").resolve_address() == ("127.0.0.1", 8080)
    with pytest.raises(LoadError, match="known"):
        Target("udp", "no.such.host.invalid", 1).resolve_address()


# -------------------------------------------------------------------------------------- figures


def outcome_of(latency, *, refusal=None, deadline_us=0):
    latency = np.array(latency)
    due = np.arange(len(latency)) * 1_000_000
    refusal = np.zeros(len(latency), np.int32) if refusal is None else np.array(refusal, np.int32)
    traces = make_traces(due, latency, np.where(latency == NOT_HAPPENED, NOT_HAPPENED, 0), refusal)
    return Outcome("udp://here:1", 1000.0, 0, traces, deadline_us, {3: "late"})


def test_figures_of_a_load():
    found = outcome_of([10_000, 20_000, NOT_HAPPENED, 30_000, 500], refusal=[0, 0, 0, 0, 3], deadline_us=25)
    assert found.summarise() == {
        "rate": 1000.0,
        "scheduled": 5,
        "sent": 4,
        "answered": 3,
        "answered_per_s": 749.9,  # until 4.0005 ms
        "refused": {"late": 1},
        "lost": 1,
        "loss": 0.2,
        "late": 1,
        "p50_us": 20.0,
        "p99_us": 30.0,
        "p999_us": 30.0,
        "generator_lag_p99_us": 0.0,
    }


def test_nothing_answered_has_no_percentiles():
    found = outcome_of([NOT_HAPPENED, NOT_HAPPENED]).summarise()
    assert (found["p50_us"], found["loss"], found["answered_per_s"]) == (None, 1.0, 0.0)
    json.dumps(found, allow_nan=False)


@given(st.lists(st.floats(0.2, 1e8), min_size=1, max_size=200))
@example([99_999_999.9, 1.0])
@example([1.0, 10.0, 1e8])
def test_every_value_is_in_its_bucket(values):
    values = np.array(values)
    found = make_log_histogram(values)
    assert found.counts.sum() == len(values)
    ratio = 10 ** (1 / BUCKETS_PER_DECADE)
    np.testing.assert_allclose(found.edges[1:] / found.edges[:-1], ratio)
    below = np.concatenate([[0], np.cumsum(found.counts)])  # each edge, as far as logarithms are exact
    for slack, right in ((1 - 1e-9, np.less_equal), (1 + 1e-9, np.greater_equal)):
        assert right(np.searchsorted(np.sort(values), found.edges * slack), below).all()
    assert found.counts[0] > 0
    assert found.counts[-1] > 0


# --------------------------------------------------------------------------------------- inputs


def test_random_rows_are_bytes_of_the_seed():
    assert make_rows("random", (3, 4), 1).shape == (64, 3, 4)
    assert (make_rows("random", (5,), 1) == make_rows("random", (5,), 1)).all()
    assert (make_rows("random", (5,), 1) != make_rows("random", (5,), 2)).any()


def test_rows_of_a_data_set(tmp_path):
    """Two images of 28 x 28 in IDX files: magic number, sizes, bytes."""
    images = np.arange(2 * 784, dtype=np.uint32).astype(np.uint8)
    head = struct.pack(">4I", 0x803, 2, 28, 28)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(head + images.tobytes())
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 2) + bytes([3, 4]))
    assert (make_rows(f"mnist:{tmp_path}", (784,), 0).reshape(-1) == images).all()
    with pytest.raises(DatasetError):
        make_rows(f"mnist:{tmp_path / 'nowhere'}", (784,), 0)


def test_rows_of_a_file(tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(12.0).reshape(2, 6))
    assert make_rows(str(tmp_path / "rows.npy"), (3, 2), 0).shape == (2, 3, 2)
    with pytest.raises(LoadError, match="6 values"):
        make_rows(str(tmp_path / "rows.npy"), (5,), 0)


@pytest.mark.parametrize("content", [b"", b"no array", b"\x93NUMPY"])
def test_files_that_are_none(tmp_path, content):
    (tmp_path / "rows.npy").write_bytes(content)
    with pytest.raises(LoadError):
        load_rows(str(tmp_path / "rows.npy"))
    with pytest.raises(LoadError, match="there is no file"):
        load_rows(str(tmp_path / "missing.npy"))


@pytest.mark.parametrize("array", [np.zeros((0, 5)), np.array(["a"]), np.float32(3)])
def test_arrays_without_rows(tmp_path, array):
    np.save(tmp_path / "rows.npy", array)
    with pytest.raises(LoadError):
        load_rows(str(tmp_path / "rows.npy"))


# ------------------------------------------------------------------------------------- messages


def test_what_a_model_takes():
    described = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 28, 28]}]}
    assert parse_input(described) == ModelInput("x", "FP32", (28, 28))


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {},
        {"inputs": []},
        {"inputs": [{"name": "x", "datatype": "FP32"}]},
        {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [-1, 4]}]},
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}]},
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}] * 2},
    ],
)
def test_models_that_cannot_be_fed(metadata):
    with pytest.raises(LoadError):
        parse_input(metadata)


def parts_of(request):
    head, _, body = request.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    assert int(headers["Content-Length"]) == len(body)
    assert find_message_length(request) == len(request)
    return head.split(b"\r\n")[0], headers, body


def test_a_request_as_json():
    (request,) = encode_requests(
        SERVER, "m", ModelInput("x", "FP32", (2,)), np.array([[1, 255]], np.uint8), binary=False
    )
    line, _, body = parts_of(request)
    assert line == b"POST /v2/models/m/infer HTTP/1.1"
    tensor = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 255.0]}
    assert json.loads(body) == {"inputs": [tensor]}


def test_a_request_in_binary():
    rows = np.array([[1, 258]], np.uint16)
    (request,) = encode_requests(SERVER, "m", ModelInput("x", "INT32", (2,)), rows, binary=True)
    _, headers, body = parts_of(request)
    length = int(headers["Inference-Header-Content-Length"])
    document = json.loads(body[:length])
    assert document["inputs"] == [
        {"name": "x", "shape": [1, 2], "datatype": "INT32", "parameters": {"binary_data_size": 8}}
    ]
    assert document["parameters"] == {"binary_data_output": True}
    assert body[length:] == bytes([1, 0, 0, 0, 2, 1, 0, 0])


@pytest.mark.parametrize(
    ("answer", "status", "closes"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 200, False),
        (b"HTTP/1.1 504 Late\r\nconnection: close\r\ncontent-length:0\r\n\r\n", 504, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 200, False),
    ],
)
def test_where_an_answer_ends(answer, status, closes):
    for cut in range(len(answer)):
        assert parse_reply(answer[:cut]) is None
    for after in (b"", b"HTTP/1.1 200 OK\r\n"):
        found = parse_reply(answer + after)
        assert (found.status, found.length, found.closes_connection) == (status, len(answer), closes)


def test_what_is_no_http_is_named():
    with pytest.raises(LoadError):
        parse_reply(b"SSH-2.0-OpenSSH_9.2\r\n")
