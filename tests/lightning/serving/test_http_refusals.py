"""Bytes that are not a request are refused by name and with the right status, and the server stays up."""

import http.client
import json
import socket

import numpy as np
import pytest
from libraries import library, skip_without

skip_without("fastapi", reason="HTTP needs lightbed[serve]")
skip_without("httptools", reason="HTTP needs lightbed[serve]")
skip_without("orjson", reason="HTTP needs lightbed[serve]")
skip_without("prometheus_client", reason="HTTP needs lightbed[serve]")
skip_without("uvicorn", reason="HTTP needs lightbed[serve]")
skip_without("uvloop", reason="HTTP needs lightbed[serve]")

from lightning.serving.http.fast_path import Infer, Limits
from lightning.serving.repository import Repository

serving = library("lightning.serving.server")

TIMEOUT_S = 20

# -------------------------------------------------------------------------------- what it refuses

FULL = {"name": "image", "shape": [3, 20], "datatype": "UINT8", "data": [7] * 60}


@pytest.mark.parametrize(
    ("document", "status", "code"),
    [
        ({}, 400, "serving.malformed"),
        ({"inputs": [FULL | {"datatype": "BOOL"}]}, 400, "serving.malformed"),
        ({"inputs": [FULL | {"shape": [3, 21]}]}, 400, "serving.malformed"),
        ({"inputs": [FULL | {"name": "picture"}]}, 400, "input"),
        ({"inputs": [FULL, FULL]}, 400, "input"),
        ({"inputs": []}, 400, "input"),
        ({"inputs": [FULL | {"shape": [0, 20], "data": []}]}, 400, "input"),
        ({"inputs": [FULL | {"shape": [0, 2**63], "data": []}]}, 400, "serving.malformed"),
        ({"inputs": [FULL | {"shape": [0, 2**62, 2**62], "data": []}]}, 400, "serving.malformed"),
        ({"inputs": [FULL | {"shape": [0] + [2**40] * 7, "data": []}]}, 400, "serving.malformed"),
        ({"inputs": [FULL | {"shape": [60], "data": [1] * 60}]}, 400, "input"),
        ({"inputs": [FULL | {"shape": [3, 2], "data": [1] * 6}]}, 400, "input"),
        ({"inputs": [FULL], "parameters": {"timeout": -1}}, 400, "serving.malformed"),
        ({"inputs": [FULL], "parameters": {"timeout": 1}}, 504, "serving.deadline"),
        ({"inputs": [FULL], "parameters": {"key": 2**64}}, 400, "serving.malformed"),
        ({"inputs": [FULL], "parameters": {"key": -1}}, 400, "serving.malformed"),
        ({"inputs": [FULL], "outputs": [{"name": "other"}]}, 400, "serving.malformed"),
    ],
)
def test_requests_that_do_not_fit_are_refused_by_name(client, document, status, code):
    found = client("POST", "/v2/models/small/infer", document)
    assert (found[0], found[1]["code"]) == (status, code)
    assert found[1]["error"]
    client.scores()  # the connection is kept, and the server is up


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused(client, value):
    raw = np.full((1, 20), value, np.float32).tobytes()
    text = json.dumps(
        {
            "inputs": [
                {
                    "name": "image",
                    "shape": [1, 20],
                    "datatype": "FP32",
                    "parameters": {"binary_data_size": len(raw)},
                }
            ]
        }
    ).encode()
    headers = {"Inference-Header-Content-Length": str(len(text))}
    status, found, _ = client("POST", "/v2/models/small/infer", text + raw, headers)
    assert (status, found["code"]) == (400, "input")
    assert "NaN" in found["error"]


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_has_not_are_named(client, word):
    body = f'{{"inputs": [{{"name": "image", "shape": [1, 2], "datatype": "FP32", "data": [1.0, {word}]}}]}}'
    status, found, _ = client("POST", "/v2/models/small/infer", body.encode())
    assert (status, found["code"]) == (400, "serving.malformed")
    assert f"JSON cannot carry {word}" in found["error"]


@pytest.mark.socket
def test_an_error_names_the_model_as_it_is_served(connect, opened, model):
    repository = Repository(opened)
    repository.load("digits", model)
    with serving.HttpServer(Infer(repository)) as server:
        client = connect(server)
        _, shape, _ = client("POST", "/v2/models/digits/infer", {"inputs": [FULL | {"shape": [60]}]})
    repository.close()
    assert "digits takes (n, 20)" in shape["error"]
    assert "small" not in shape["error"]


def test_a_path_that_is_none_names_those_that_are(client):
    _, found, _ = client("GET", "/")
    assert "/docs" in found["error"]
    assert "/v2" in found["error"]


@pytest.mark.parametrize("length", ["x", "-1", "0", "999999", "9" * 30])
def test_a_wrong_length_of_the_document_is_refused(client, length):
    headers = {"Inference-Header-Content-Length": length}
    status, found, _ = client("POST", "/v2/models/small/infer", {"inputs": [FULL]}, headers)
    assert (status, found["code"]) == (400, "serving.malformed")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("POST", "/v2/models/absent/infer", 404, "serving.unknown-model"),
        ("POST", "/v2/models/small/versions/99/infer", 404, "serving.unknown-model"),
        ("GET", "/v2/models/absent", 404, "serving.unknown-model"),
        ("GET", "/v2/models/absent/ready", 404, "serving.unknown-model"),
        ("POST", "/v2/repository/models/absent/load", 404, "serving.unknown-model"),
        ("POST", "/v2/repository/models/absent/unload", 404, "serving.unknown-model"),
        ("POST", "/v2/repository/models/..%2Fsmall/load", 404, "http.404"),
        ("POST", "/v2/repository/models/.small/load", 400, "serving"),
        ("GET", "/v2/models/small/infer", 405, "http.405"),
        ("DELETE", "/v2/models/small", 405, "http.405"),
        ("POST", "/v2/health/live", 405, "http.405"),
        ("GET", "/nothing", 404, "http.404"),
    ],
)
def test_ways_that_lead_nowhere(client, method, path, status, code):
    found = client(method, path, b"{}" if method == "POST" else None)
    assert (found[0], found[1]["code"]) == (status, code)


def test_a_compressed_body_is_refused(client):
    status, found, _ = client("POST", "/v2/models/small/infer", b"\x1f\x8b", {"Content-Encoding": "gzip"})
    assert (status, found["code"]) == (400, "serving.malformed")


def raw_answer(server, sent):
    """Return (status, whether the server closed) of bytes sent as they are, and one more request if it did not."""
    with socket.create_connection((server.address.host, server.address.port), timeout=TIMEOUT_S) as plug:
        plug.sendall(sent)
        response = http.client.HTTPResponse(plug)
        response.begin()
        response.read()
        return response.status, response.getheader("connection") == "close"


GIGABYTE = b"POST /v2/models/small/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n"


def test_a_body_of_a_gigabyte_is_refused_before_it_comes(http_server, client):
    assert raw_answer(http_server, GIGABYTE + b"\r\n{") == (413, False)
    client.scores()


def test_who_waits_for_leave_to_send_it_is_refused(http_server, client):
    assert raw_answer(http_server, GIGABYTE + b"Expect: 100-continue\r\n\r\n") == (413, True)
    client.scores()


def test_a_body_without_a_length_is_refused_when_it_is_too_long(client):
    sent = (b" " * 50_000 for _ in range(3))
    status, found, _ = client("POST", "/v2/models/small/infer", sent)
    assert (status, found["code"]) == (413, "serving.too-large")


def test_a_body_in_pieces_is_read_whole(client):
    text = json.dumps({"inputs": [FULL]}).encode()
    sent = (text[start : start + 100] for start in range(0, len(text), 100))
    assert client("POST", "/v2/models/small/infer", sent)[0] == 200


@pytest.mark.socket
def test_bodies_that_wait_have_a_room_of_limited_size(connect, opened, model, wait_for):
    repository = Repository(opened)
    repository.load("m", model)
    infer = Infer(repository, Limits(max_body_bytes=4000, max_total_body_bytes=5000))
    head = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 3000\r\n\r\n"
    with serving.HttpServer(infer) as server:
        client = connect(server)
        with socket.create_connection((server.address.host, server.address.port), timeout=TIMEOUT_S) as plug:
            plug.sendall(head + b"{")
            wait_for(lambda: infer.reserved_bytes == 1)  # what came, not what is announced
            assert client("POST", "/v2/models/m/infer", b" " * 4000)[0] == 400
            plug.sendall(b" " * 2998)
            wait_for(lambda: infer.reserved_bytes == 2999)
            status, found, _ = client("POST", "/v2/models/m/infer", b" " * 2002)
            assert (status, found["code"]) == (503, "serving.busy")
            assert client("POST", "/v2/models/m/infer", {"inputs": [FULL]})[0] == 200
        wait_for(lambda: infer.reserved_bytes == 0)
        assert client("POST", "/v2/models/m/infer", b" " * 4000)[0] == 400
    repository.close()


def test_no_http_at_all(http_server, client):
    with socket.create_connection(
        (http_server.address.host, http_server.address.port), timeout=TIMEOUT_S
    ) as plug:
        plug.sendall(b"\x00\x01\x02 nonsense\r\n\r\n")
        assert plug.recv(1000).startswith(b"HTTP/1.1 400")
    client.scores()


def test_who_goes_away_in_the_middle_is_counted(doubled, wait_for):
    server, _, infer = doubled
    with socket.create_connection((server.address.host, server.address.port), timeout=TIMEOUT_S) as plug:
        plug.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
        wait_for(lambda: infer.counts.in_flight_count == 1)
    wait_for(lambda: infer.counts.in_flight_count == 0)
    assert infer.counts.get_model_counts("m").failure_counts == {"disconnected": 1}
    assert infer.repository.list_serving()[0].users == 0
