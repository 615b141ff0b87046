"""The server on a real socket: what it says of itself and its models, and what it answers."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from libraries import library, skip_without

skip_without("fastapi", reason="HTTP needs lightbed[serve]")
skip_without("httptools", reason="HTTP needs lightbed[serve]")
skip_without("orjson", reason="HTTP needs lightbed[serve]")
skip_without("prometheus_client", reason="HTTP needs lightbed[serve]")
skip_without("uvicorn", reason="HTTP needs lightbed[serve]")
skip_without("uvloop", reason="HTTP needs lightbed[serve]")

from lightning.compiler import model_hash
from lightning.errors import LightningError, ServingError
from lightning.execution import open_executor
from lightning.serving.http.asgi import STATUS_BY_ERROR
from lightning.serving.http.fast_path import Infer
from lightning.serving.repository import Repository

serving = library("lightning.serving.server")

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "serving.md"

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


def test_the_page_names_every_route_code_and_metric(client):
    page = PAGE.read_text(encoding="utf-8").replace("[/versions/V]", "")
    _, found, _ = client("GET", "/openapi.json")
    routes = {
        f"{method.upper()} {path}".replace("/versions/{number}", "").replace("{model}", "M")
        for path, methods in found["paths"].items()
        for method in methods
    }
    assert len(routes) == 10
    assert [route for route in sorted(routes) if f"`{route}`" not in page] == []
    codes = {
        kind.code: status
        for kind, status in STATUS_BY_ERROR.items()
        if kind not in (ServingError, LightningError)
    }
    named = {
        code: int(status)
        for status, cells in re.findall(r"^\| (\d{3}) \| (`.*?) \|", page, re.MULTILINE)
        for code in re.findall(r"`([\w.-]+)`", cells)
    }
    assert {code: named.get(code) for code in codes} == codes
    client.scores()
    client("POST", "/v2/models/small/infer", {})
    metrics = {name.partition("{")[0].removesuffix("_bucket") for name in client.metrics()}
    ours = {name for name in metrics if not name.endswith(("_count", "_sum"))}
    assert len(ours) == 9
    assert [name for name in sorted(ours) if f"`{name}`" not in page] == []


# -------------------------------------------------------------------------------- what it answers


@pytest.mark.parametrize("datatype", ["UINT8", "INT16", "INT64", "UINT32", "FP32", "FP64"])
def test_answers_are_those_of_the_executor(client, model, datatype, images):
    expected = open_executor(model).run(images).scores
    found, document = client.scores(datatype=datatype, id="a7")
    assert np.array_equal(found, expected)
    assert (document["model_name"], document["id"]) == ("small", "a7")
    assert document["parameters"]["fidelity"] == "exact"
    assert document["parameters"]["cycles"] > 0


@pytest.mark.parametrize("datatype", ["UINT8", "FP16", "FP32", "FP64", "INT32"])
def test_binary_tensors_both_ways(client, model, datatype, images):
    kinds = {"UINT8": "u1", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8", "INT32": "<i4"}
    raw = images.astype(kinds[datatype]).tobytes()
    document = client.request_of(images, datatype, parameters={"binary_data_output": True})
    del document["inputs"][0]["data"]
    document["inputs"][0]["parameters"] = {"binary_data_size": len(raw)}
    text = json.dumps(document).encode()
    headers = {"Inference-Header-Content-Length": str(len(text))}
    status, found, given = client("POST", "/v2/models/small/infer", text + raw, headers)
    assert status == 200
    length = int(given["Inference-Header-Content-Length"])
    scores = np.frombuffer(found[length:], "<f4").reshape(3, 5)
    assert np.array_equal(scores, open_executor(model).run(images).scores)
    (output,) = json.loads(found[:length])["outputs"]
    assert output["parameters"]["binary_data_size"] == 60


def test_one_image_alone_is_answered_as_in_a_batch(client, images):
    together, _ = client.scores()
    alone = [client.scores(inputs=images[[each]])[0][0] for each in range(3)]
    assert np.array_equal(together, alone)


def signatures():
    """Return how many versions of every function of ours numba has compiled."""
    modules = [module for name, module in sys.modules.items() if name.startswith("lightning.execution")]
    functions = {
        name: each for module in modules for name, each in vars(module).items() if hasattr(each, "signatures")
    }
    return {name: len(each.signatures) for name, each in functions.items()}


@pytest.mark.socket
@pytest.mark.parametrize("fidelity", ["exact", "noisy"])
def test_nothing_is_compiled_after_ready(connect, model, fidelity, images):
    pytest.importorskip("numba", reason="without numba nothing is compiled")
    repository = Repository(lambda each: open_executor(each, fidelity))
    repository.load("m", model)
    with serving.HttpServer(Infer(repository)) as server:
        client = connect(server)
        before = signatures()
        for datatype in ("UINT8", "INT16", "FP32", "FP64"):
            client.scores("m", datatype=datatype)
            client.scores("m", inputs=images[:1], datatype=datatype)
        assert signatures() == before
    assert sum(before.values()) > 0
    repository.close()


def test_keys_of_the_noise_come_from_the_request(connect, doubled, images):
    client = connect(doubled[0])

    def keys(**rest):
        scores, document = client.scores("m", **rest)
        assert document["parameters"]["key"] == scores[0, 0]
        return scores[:, 0].tolist()

    assert keys() == [0, 1, 2]
    assert keys() == [3, 4, 5]
    assert keys(id="17") == [17, 18, 19]
    assert keys(id="17", parameters={"key": 40}) == [40, 41, 42]
    assert keys(inputs=images[:1], parameters={"key": 5}) == [5]


def test_an_id_in_words_names_its_noise(connect, client, model):
    pytest.importorskip("numba", reason="noise needs numba")
    repository = Repository(lambda each: open_executor(each, "noisy", seed=2))
    repository.load("m", model)
    with serving.HttpServer(Infer(repository)) as server:
        noisy = connect(server)
        first, second = (noisy.scores("m", id="batch of monday")[0] for _ in range(2))
        other = noisy.scores("m", id="batch of tuesday")[0]
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


@pytest.mark.socket
def test_an_answer_says_what_it_takes_to_have_it_again(connect, opened, model):
    origin = {"version": "9", "seed": 5, "noise": {"sigma": 2.0}, "calibration": "kit 7", "device": "kit"}
    repository = Repository(opened, make_origin=lambda _: origin)
    instance = repository.load("m", model)
    with serving.HttpServer(Infer(repository)) as server:
        client = connect(server)
        _, found = client.scores("m")
        _, metadata, _ = client("GET", "/v2/models/m")
    repository.close()
    reported = found["parameters"]
    assert (reported["hash"], reported["seed"], reported["calibration"]) == (instance.hash, 5, "kit 7")
    assert instance.hash == model_hash(model)  # of the model, whatever its name in service
    assert metadata["parameters"].items() >= {**origin, "hash": instance.hash}.items()
