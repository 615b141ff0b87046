"""The server on a real socket: what it answers, what it refuses, and that it stays up."""

import http.client
import json
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="HTTP needs lightbed[serve]")
pytest.importorskip("httptools", reason="HTTP needs lightbed[serve]")
pytest.importorskip("orjson", reason="HTTP needs lightbed[serve]")
pytest.importorskip("prometheus_client", reason="HTTP needs lightbed[serve]")
pytest.importorskip("uvicorn", reason="HTTP needs lightbed[serve]")
pytest.importorskip("uvloop", reason="HTTP needs lightbed[serve]")

from lightning.compiler import model_hash
from lightning.errors import ServingError
from lightning.execution import open_executor
from lightning.serving.hot import Infer, Limits
from lightning.serving.repository import Repository
from lightning.serving.server import HttpServer

TIMEOUT_S = 20
IMAGES = np.random.default_rng(1).integers(0, 256, (3, 20), dtype=np.uint8)


class Client:
    """One connection, kept."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection(
            server.address.host, server.address.port, timeout=TIMEOUT_S
        )

    def __call__(self, method, path, body=None, headers=None):
        """(status, document or text, headers)."""
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        self.connection.request(method, path, body, headers or {})
        response = self.connection.getresponse()
        content = response.read()
        if response.headers.get_content_type() == "application/json":
            content = json.loads(content)
        return response.status, content, response.headers

    def scores(self, model="small", inputs=IMAGES, datatype="UINT8", **rest):
        """The numbers of an answer in JSON."""
        status, found, _ = self("POST", f"/v2/models/{model}/infer", request_of(inputs, datatype, **rest))
        assert status == 200, found
        (output,) = found["outputs"]
        return np.array(output["data"]).reshape(output["shape"]), found


def request_of(inputs=IMAGES, datatype="UINT8", **rest):
    tensor = {"name": "image", "shape": list(inputs.shape), "datatype": datatype, "data": inputs.tolist()}
    return {"inputs": [tensor], **rest}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def infer(directory, model):
    """A real model, from a file."""
    model.save(directory / "small.lng")
    repository = Repository(open_executor, directory)
    repository.load("small")
    yield Infer(repository, Limits(body_bytes=100_000))
    repository.close()


@pytest.fixture(scope="module")
def server(infer):
    with HttpServer(infer) as found:
        yield found


@pytest.fixture
def connect():
    """Makes clients of a server, and closes their connections."""
    made = []

    def connected(server):
        made.append(Client(server))
        return made[-1]

    yield connected
    for each in made:
        each.connection.close()


@pytest.fixture
def client(connect, server):
    return connect(server)


@pytest.fixture
def doubled(opened, model):
    """(server, its one double, `Infer`), with an executor that the test shapes."""
    repository = Repository(opened)
    repository.load("m", model)
    infer = Infer(repository, Limits(in_flight=2))
    with HttpServer(infer) as found:
        yield found, opened[0], infer
    repository.close()


# ----------------------------------------------------------------------------------- what it says


def test_it_says_what_it_is_and_what_it_has(client):
    assert client("GET", "/v2/health/live")[:2] == (200, {"live": True})
    assert client("GET", "/v2/health/ready")[:2] == (200, {"ready": True})
    status, found, _ = client("GET", "/v2")
    assert (status, found["name"]) == (200, "lightbed")
    assert "binary_tensor_data" in found["extensions"]
    assert client("GET", "/v2/models/small/ready")[:2] == (200, {"name": "small", "ready": True})


def test_metadata_name_shapes_and_origin(client, model):
    status, found, _ = client("GET", "/v2/models/small")
    assert status == 200
    assert found["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [-1, 20]}]
    assert found["outputs"] == [{"name": "scores", "datatype": "FP32", "shape": [-1, 5]}]
    assert found["parameters"]["fidelity"] == "exact"
    assert found["parameters"]["hash"] == model_hash(model)
    version = found["versions"][0]
    assert client("GET", f"/v2/models/small/versions/{version}")[1] == found


def test_the_generated_page_describes_infer(client):
    _, found, _ = client("GET", "/openapi.json")
    body = found["paths"]["/v2/models/{model}/infer"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "application/octet-stream"}


# -------------------------------------------------------------------------------- what it answers


@pytest.mark.parametrize("datatype", ["UINT8", "INT16", "INT64", "UINT32", "FP32", "FP64"])
def test_answers_are_those_of_the_executor(client, model, datatype):
    expected = open_executor(model).run(IMAGES).scores
    found, document = client.scores(datatype=datatype, id="a7")
    assert np.array_equal(found, expected)
    assert (document["model_name"], document["id"]) == ("small", "a7")
    assert document["parameters"]["fidelity"] == "exact"
    assert document["parameters"]["cycles"] > 0


@pytest.mark.parametrize("datatype", ["UINT8", "FP16", "FP32", "FP64", "INT32"])
def test_binary_tensors_both_ways(client, model, datatype):
    kinds = {"UINT8": "u1", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8", "INT32": "<i4"}
    raw = IMAGES.astype(kinds[datatype]).tobytes()
    document = request_of(datatype=datatype, parameters={"binary_data_output": True})
    del document["inputs"][0]["data"]
    document["inputs"][0]["parameters"] = {"binary_data_size": len(raw)}
    text = json.dumps(document).encode()
    headers = {"Inference-Header-Content-Length": str(len(text))}
    status, found, given = client("POST", "/v2/models/small/infer", text + raw, headers)
    assert status == 200
    length = int(given["Inference-Header-Content-Length"])
    scores = np.frombuffer(found[length:], "<f4").reshape(3, 5)
    assert np.array_equal(scores, open_executor(model).run(IMAGES).scores)
    (output,) = json.loads(found[:length])["outputs"]
    assert output["parameters"]["binary_data_size"] == 60


def test_one_image_alone_is_answered_as_in_a_batch(client):
    together, _ = client.scores()
    alone = [client.scores(inputs=IMAGES[[each]])[0][0] for each in range(3)]
    assert np.array_equal(together, alone)


def signatures():
    """How many versions of every function of ours numba has compiled."""
    modules = [module for name, module in sys.modules.items() if name.startswith("lightning.execution")]
    functions = {
        name: each for module in modules for name, each in vars(module).items() if hasattr(each, "signatures")
    }
    return {name: len(each.signatures) for name, each in functions.items()}


@pytest.mark.parametrize("fidelity", ["exact", "noisy"])
def test_nothing_is_compiled_after_ready(connect, model, fidelity):
    pytest.importorskip("numba", reason="without numba nothing is compiled")
    repository = Repository(lambda each: open_executor(each, fidelity))
    repository.load("m", model)
    with HttpServer(Infer(repository)) as server:
        client = connect(server)
        before = signatures()
        for datatype in ("UINT8", "INT16", "FP32", "FP64"):
            client.scores("m", datatype=datatype)
            client.scores("m", inputs=IMAGES[:1], datatype=datatype)
        assert signatures() == before
    assert sum(before.values()) > 0
    repository.close()


def test_keys_of_the_noise_come_from_the_request(connect, doubled):
    client = connect(doubled[0])

    def keys(**rest):
        scores, document = client.scores("m", **rest)
        assert document["parameters"]["key"] == scores[0, 0]
        return scores[:, 0].tolist()

    assert keys() == [0, 1, 2]
    assert keys() == [3, 4, 5]
    assert keys(id="17") == [17, 18, 19]
    assert keys(id="17", parameters={"key": 40}) == [40, 41, 42]
    assert keys(inputs=IMAGES[:1], parameters={"key": 5}) == [5]


def test_an_id_in_words_names_its_noise(connect, client, model):
    pytest.importorskip("numba", reason="noise needs numba")
    repository = Repository(lambda each: open_executor(each, "noisy", seed=2))
    repository.load("m", model)
    with HttpServer(Infer(repository)) as server:
        noisy = connect(server)
        first, second = (noisy.scores("m", id="batch of monday")[0] for _ in range(2))
        other = noisy.scores("m", id="batch of tuesday")[0]
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


# -------------------------------------------------------------------------------- what it refuses

FULL = request_of()["inputs"][0]


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


@pytest.mark.parametrize("length", ["x", "-1", "0", "999999", "9" * 30])
def test_a_wrong_length_of_the_document_is_refused(client, length):
    headers = {"Inference-Header-Content-Length": length}
    status, found, _ = client("POST", "/v2/models/small/infer", request_of(), headers)
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
    """(status, whether the server closed) of bytes sent as they are, and one more request if it did not."""
    with socket.create_connection((server.address.host, server.address.port), timeout=TIMEOUT_S) as plug:
        plug.sendall(sent)
        response = http.client.HTTPResponse(plug)
        response.begin()
        response.read()
        return response.status, response.getheader("connection") == "close"


GIGABYTE = b"POST /v2/models/small/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n"


def test_a_body_of_a_gigabyte_is_refused_before_it_comes(server, client):
    assert raw_answer(server, GIGABYTE + b"\r\n{") == (413, False)
    client.scores()


def test_who_waits_for_leave_to_send_it_is_told_no(server, client):
    assert raw_answer(server, GIGABYTE + b"Expect: 100-continue\r\n\r\n") == (413, True)
    client.scores()


def test_a_body_without_a_length_is_refused_when_it_is_too_long(client):
    sent = (b" " * 50_000 for _ in range(3))
    status, found, _ = client("POST", "/v2/models/small/infer", sent)
    assert (status, found["code"]) == (413, "serving.too-large")


def test_a_body_in_pieces_is_read_whole(client):
    text = json.dumps(request_of()).encode()
    sent = (text[start : start + 100] for start in range(0, len(text), 100))
    assert client("POST", "/v2/models/small/infer", sent)[0] == 200


def test_no_http_at_all(server, client):
    with socket.create_connection((server.address.host, server.address.port), timeout=TIMEOUT_S) as plug:
        plug.sendall(b"\x00\x01\x02 nonsense\r\n\r\n")
        assert plug.recv(1000).startswith(b"HTTP/1.1 400")
    client.scores()


def test_who_goes_away_in_the_middle_is_counted(doubled):
    server, _, infer = doubled
    with socket.create_connection((server.address.host, server.address.port), timeout=TIMEOUT_S) as plug:
        plug.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
        wait_for(lambda: infer.counts.in_flight == 1)
    wait_for(lambda: infer.counts.in_flight == 0)
    assert infer.counts.of("m").failures == {"disconnected": 1}
    assert infer.repository.serving()[0].users == 0


def wait_for(true):
    """Until it is so; the clock is only for a test that fails."""
    patience = threading.Event()
    for _ in range(2000):
        if true():
            return
        patience.wait(0.005)
    raise AssertionError("it never came to pass")


# ------------------------------------------------------------------------------ work that is long


def test_long_work_does_not_keep_others_from_being_heard(connect, doubled):
    server, double, _ = doubled
    double.gate.clear()
    double.started.clear()
    server_models = server_loaded(doubled)
    server_models.seconds_per_image = float("inf")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(connect(server).scores, "m")
        assert double.started.wait(TIMEOUT_S)
        other = connect(server)
        assert other("GET", "/v2/health/ready")[0] == 200
        assert b"lightning_queue 1.0" in other("GET", "/metrics")[1]
        assert not waiting.done()
        double.gate.set()
        assert waiting.result()[0].shape == (3, 2)


def server_loaded(doubled):
    return doubled[2].repository.serving()[0]


def test_a_deadline_that_passes_in_the_queue(connect, doubled):
    server, double, infer = doubled
    server_loaded(doubled).seconds_per_image = float("inf")
    double.gate.clear()
    double.started.clear()
    late = request_of(parameters={"timeout": 1000})
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(connect(server).scores, "m")
        assert double.started.wait(TIMEOUT_S)
        second = threads.submit(connect(server), "POST", "/v2/models/m/infer", late)
        wait_for(lambda: infer.counts.in_flight == 2)
        threading.Event().wait(0.002)  # the deadline
        double.gate.set()
        first.result()
        status, found, _ = second.result()
    assert (status, found["code"]) == (504, "serving.deadline")


def test_more_than_it_can_hold_is_refused(connect, doubled):
    server, double, infer = doubled
    server_loaded(doubled).seconds_per_image = float("inf")
    double.gate.clear()
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(connect(server).scores, "m") for _ in range(2)]
        wait_for(lambda: infer.counts.in_flight == 2)
        status, found, _ = connect(server)("POST", "/v2/models/m/infer", request_of())
        double.gate.set()
        assert all(each.result()[0].shape == (3, 2) for each in asked)
    assert (status, found["code"]) == (503, "serving.busy")


def test_at_its_end_it_answers_what_has_been_asked(connect, opened, model):
    repository = Repository(opened)
    repository.load("m", model).seconds_per_image = float("inf")
    opened[0].gate.clear()
    opened[0].started.clear()
    with ThreadPoolExecutor(1) as threads:
        with HttpServer(Infer(repository)) as server:
            waiting = threads.submit(connect(server).scores, "m")
            assert opened[0].started.wait(TIMEOUT_S)
            threading.Timer(0.05, opened[0].gate.set).start()
        assert waiting.result()[0].shape == (3, 2)
    with pytest.raises(ConnectionRefusedError):
        connect(server)("GET", "/v2")


def test_a_port_has_one_server(opened):
    infer = Infer(Repository(opened))
    first = HttpServer(infer)
    second = HttpServer(infer, port=first.address.port)  # nobody listens yet
    with first:
        with pytest.raises(ServingError, match="cannot listen on"):
            second.__enter__()
        with pytest.raises(ServingError, match="cannot listen on"):
            HttpServer(infer, port=first.address.port)


def test_a_fault_of_ours_is_an_answer_too(connect, doubled, caplog):
    server, double, _ = doubled
    double.run = lambda inputs, keys: 1 / 0
    status, found, _ = connect(server)("POST", "/v2/models/m/infer", request_of())
    assert (status, found["code"]) == (500, "internal")
    assert "ZeroDivisionError" in caplog.text


# ----------------------------------------------------------------------------- models come and go


def test_models_are_swapped_under_load_and_no_request_is_lost(connect, opened, model, other_model):
    repository = Repository(opened)
    repository.load("m", model)
    stop = threading.Event()
    versions = []

    def ask(server):
        client = connect(server)
        count = 0
        while not stop.is_set():
            versions.append(client.scores("m")[1]["model_version"])
            count += 1
        return count

    with HttpServer(Infer(repository)) as server, ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(ask, server) for _ in range(2)]
        try:
            for version in range(2, 7):
                swap = connect(server)("POST", "/v2/repository/models/m/load")
                assert swap[:2] == (200, {"name": "m", "version": str(version)})
                wait_for(lambda wanted=str(version): wanted in versions)
        finally:
            stop.set()
        count = sum(each.result() for each in asked)
    assert len(versions) == count
    assert set(versions) >= {"2", "3", "4", "5", "6"}
    assert [each.closed for each in opened] == [True] * 5 + [False]
    repository.close()


def test_models_are_unloaded_listed_and_loaded_again(client):
    assert client("POST", "/v2/repository/models/small/unload")[0] == 200
    assert client("POST", "/v2/models/small/infer", request_of())[0] == 404
    assert client("GET", "/v2/health/ready")[:2] == (503, {"ready": False})
    _, index, _ = client("POST", "/v2/repository/index")
    assert [(each["name"], each["state"]) for each in index] == [("small", "UNAVAILABLE")]
    assert client("POST", "/v2/repository/index", {"ready": True})[1] == []
    assert client("POST", "/v2/repository/models/small/load")[0] == 200
    _, index, _ = client("POST", "/v2/repository/index")
    assert [(each["name"], each["state"]) for each in index] == [("small", "READY")]
    client.scores()


def test_files_cannot_be_named_from_afar(client):
    body = {"parameters": {"file": "/etc/passwd"}}
    status, found, _ = client("POST", "/v2/repository/models/small/load", body)
    assert (status, found["code"]) == (400, "serving.malformed")


def test_a_damaged_file_is_refused_and_the_old_model_goes_on(client, directory):
    whole = (directory / "small.lng").read_bytes()
    (directory / "small.lng").write_bytes(whole[: len(whole) // 2])
    try:
        status, found, _ = client("POST", "/v2/repository/models/small/load")
        assert (status, found["code"]) == (422, "model-file")
        client.scores()
    finally:
        (directory / "small.lng").write_bytes(whole)


# ------------------------------------------------------------------------------------ what it counts


def metrics(client):
    _, text, _ = client("GET", "/metrics")
    lines = (line.rsplit(" ", 1) for line in text.decode().splitlines() if line[:1] != "#")
    return {name: float(value) for name, value in lines}


def test_metrics_add_up(connect, doubled):
    server, _, _ = doubled
    client = connect(server)
    for _ in range(4):
        client.scores("m")
    client("POST", "/v2/models/m/infer", {})
    client("POST", "/v2/models/m/infer", request_of(IMAGES[:, :7]))
    client("POST", "/v2/models/any/infer", {})
    client("POST", "/v2/models/thing/infer", {})
    found = metrics(client)
    assert found['lightning_requests_total{model="m"}'] == 6
    assert found['lightning_failures_total{model="m",reason="serving.malformed"}'] == 1
    assert found['lightning_failures_total{model="m",reason="input"}'] == 1
    assert found['lightning_failures_total{model="",reason="serving.unknown-model"}'] == 2
    assert found['lightning_images_total{model="m"}'] == 12
    assert found['lightning_events_total{event="clipped_readouts",model="m"}'] == 12
    assert found['lightning_request_seconds_count{model="m"}'] == 6
    assert found['lightning_request_seconds_bucket{le="+Inf",model="m"}'] == 6
    assert found['lightning_model_loaded{model="m"}'] == 1
    assert found['lightning_model_users{model="m"}'] == 0
    assert found["lightning_queue"] == 0


def test_packets_are_counted_on_the_same_page(connect, opened, model):
    repository = Repository(opened)
    with HttpServer(Infer(repository), packets=lambda: {"answered": 5, "late": 1}) as server:
        client = connect(server)
        found = metrics(client)
    assert found['lightning_packets_total{outcome="answered"}'] == 5
    assert found['lightning_packets_total{outcome="late"}'] == 1
