"""Somebody else's client of the Open Inference Protocol, NVIDIA's `tritonclient`, works against our server."""

import numpy as np
import pytest
from libraries import library, skip_without
from needs import needs

skip_without("fastapi", reason="HTTP needs lightbed[serve]")
skip_without("uvloop", reason="HTTP needs lightbed[serve]")
skip_without("tritonclient.http", reason="needs tritonclient[http]")


from lightning.execution import open_executor
from lightning.serving.http.fast_path import Infer
from lightning.serving.repository import Repository

serving = library("lightning.serving.server")
triton = library("tritonclient.http")
utils = library("tritonclient.utils")

IMAGES = np.random.default_rng(5).integers(0, 256, (4, 20), dtype=np.uint8)


@pytest.fixture(scope="module")
@needs("socket")
def client(model):
    repository = Repository(open_executor)
    repository.load("small", model)
    with serving.HttpServer(Infer(repository)) as server:
        found = triton.InferenceServerClient(str(server.address))
        yield found
        found.close()
    repository.close()


@pytest.fixture(scope="module")
def expected(model):
    return open_executor(model).run(IMAGES).scores


def given(images=IMAGES, datatype="UINT8", *, binary=True):
    tensor = triton.InferInput("image", list(images.shape), datatype)
    return [tensor.set_data_from_numpy(images, binary_data=binary)]


def test_it_finds_server_and_model(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("small")
    assert not client.is_model_ready("other")
    assert client.get_server_metadata()["name"] == "lightbed"
    assert client.get_model_metadata("small")["outputs"][0]["name"] == "scores"


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("received", [True, False, None])
def test_it_asks_and_understands(client, expected, sent, received):
    wanted = None if received is None else [triton.InferRequestedOutput("scores", binary_data=received)]
    found = client.infer("small", given(binary=sent), outputs=wanted, request_id="7")
    assert np.array_equal(found.as_numpy("scores"), expected)
    assert found.get_response()["id"] == "7"


@pytest.mark.parametrize(
    ("datatype", "kind"), [("FP32", np.float32), ("FP16", np.float16), ("INT64", np.int64)]
)
def test_it_may_send_other_datatypes(client, expected, datatype, kind):
    found = client.infer("small", given(IMAGES.astype(kind), datatype))
    assert np.array_equal(found.as_numpy("scores"), expected)


def test_it_may_ask_for_several_at_a_time(client, expected):
    asked = [client.async_infer("small", given(IMAGES[[each]])) for each in range(4)]
    found = [each.get_result().as_numpy("scores")[0] for each in asked]
    assert np.array_equal(found, expected)


def test_it_is_reported_why_not(client):
    with pytest.raises(utils.InferenceServerException, match="takes") as caught:
        client.infer("small", given(IMAGES[:, :7]))
    assert caught.value.status() == "400"
    with pytest.raises(utils.InferenceServerException, match="no model 'other' is loaded"):
        client.infer("other", given())
    with pytest.raises(utils.InferenceServerException, match="deadline") as caught:
        client.infer("small", given(), timeout=1)
    assert caught.value.status() == "504"


def test_it_loads_and_unloads(client, expected):
    before = client.get_model_repository_index()
    client.load_model("small")
    (after,) = client.get_model_repository_index()
    assert [int(each["version"]) + 1 for each in before] == [int(after["version"])]
    client.unload_model("small")
    assert not client.is_model_ready("small")
    client.load_model("small")
    assert np.array_equal(client.infer("small", given()).as_numpy("scores"), expected)
