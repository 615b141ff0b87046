"""A small network as a compiled model, executors that the test shapes, and a client of HTTP."""

import http.client
import json
import threading
import time

import numpy as np
import pytest
from needs import needs

from lightning.compiler import Options, compile_network, save_model
from lightning.execution import open_executor
from lightning.execution.interface import Answers, check_keys
from lightning.networks.network import Network, Node, Preprocessing
from lightning.networks.preprocess import preprocess
from lightning.serving.repository import Repository

TERMS, HIDDEN, CLASSES = 20, 12, 5
TIMEOUT_S = 20
IMAGES = np.random.default_rng(1).integers(0, 256, (3, TERMS), dtype=np.uint8)


def network_of(seed=3, name="small"):
    """Twenty bytes, a hidden layer, five scores."""
    random = np.random.default_rng(seed)
    constants = {
        "w1": random.normal(size=(HIDDEN, TERMS)).astype(np.float32),
        "w2": random.normal(size=(CLASSES, HIDDEN)).astype(np.float32),
    }
    nodes = (
        Node("fc1", "Gemm", ("image", "w1"), "sums"),
        Node("relu1", "Relu", ("sums",), "hidden"),
        Node("fc2", "Gemm", ("hidden", "w2"), "scores"),
    )
    shapes = {"image": (TERMS,), "sums": (HIDDEN,), "hidden": (HIDDEN,), "scores": (CLASSES,)}
    return Network(name, nodes, constants, "image", "scores", shapes, Preprocessing(scale=1 / 255))


def model_of(seed=3, name="small"):
    return compile_network(network_of(seed, name), None, Options(scheme="published"))


@pytest.fixture(scope="session")
def model():
    return model_of()


@pytest.fixture(scope="session")
def other_model():
    """Return a model of the same shapes, with other weights."""
    return model_of(seed=4, name="other")


class Double:
    """An executor whose answers are the key and the first number; it says when it is closed, and may wait."""

    fidelity = "exact"

    def __init__(self, model):
        self.model = model
        self.closed = False
        self.warmed = []
        self.darkest = np.inf
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Event()

    def run(self, inputs, keys=None):
        assert not self.closed
        preprocess(self.model.network, inputs)  # it refuses
        keys = check_keys(keys, len(inputs))
        self.darkest = min(self.darkest, inputs.min())
        self.warmed.append((inputs.dtype.name, inputs.shape[0], inputs.flags.writeable))
        self.started.set()
        assert self.gate.wait(60)
        scores = np.stack([keys.astype(np.float32), inputs.reshape(len(inputs), -1)[:, 0]], axis=1)
        return Answers(scores.astype(np.float32), 7, {"clipped_readouts": len(inputs)})

    def warm(self):
        self.warmed.append("warm")

    def close(self):
        assert not self.closed
        self.closed = True


@pytest.fixture
def double():
    return Double


@pytest.fixture
def opened():
    """Make doubles for a repository, and keep them in the order in which models were opened."""

    class Opener(list):
        def __call__(self, model):
            self.append(Double(model))
            return self[-1]

    return Opener()


# ------------------------------------------------------------------------------------------- HTTP


class Client:
    """One connection, kept."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection(
            server.address.host, server.address.port, timeout=TIMEOUT_S
        )

    def __call__(self, method, path, body=None, headers=None):
        """Return (status, document or text, headers)."""
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        self.connection.request(method, path, body, headers or {})
        response = self.connection.getresponse()
        content = response.read()
        if response.headers.get_content_type() == "application/json":
            content = json.loads(content)
        return response.status, content, response.headers

    def scores(self, model="small", inputs=IMAGES, datatype="UINT8", **rest):
        """Return the numbers of an answer in JSON."""
        status, found, _ = self(
            "POST", f"/v2/models/{model}/infer", self.request_of(inputs, datatype, **rest)
        )
        assert status == 200, found
        (output,) = found["outputs"]
        return np.array(output["data"]).reshape(output["shape"]), found

    @staticmethod
    def request_of(inputs, datatype="UINT8", **rest):
        """Return a request in JSON."""
        data = inputs.tolist()
        tensor = {"name": "image", "shape": list(inputs.shape), "datatype": datatype, "data": data}
        return {"inputs": [tensor], **rest}

    def metrics(self):
        """Return names with their labels, and values."""
        _, text, _ = self("GET", "/metrics")
        lines = (line.rsplit(" ", 1) for line in text.decode().splitlines() if line[:1] != "#")
        return {name: float(value) for name, value in lines}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def infer(directory, model):
    """Yield a real model, from a file."""
    from lightning.serving.http.fast_path import Infer, Limits

    save_model(model, directory / "small.lng")
    repository = Repository(open_executor, directory)
    repository.load("small")
    yield Infer(repository, Limits(max_body_bytes=100_000))
    repository.close()


@pytest.fixture(scope="module")
@needs("socket")
def http_server(infer):
    from lightning.serving.server import HttpServer

    with HttpServer(infer) as found:
        yield found


@pytest.fixture
def connect():
    """Make clients of a server, and close their connections."""
    made = []

    def connected(server):
        made.append(Client(server))
        return made[-1]

    yield connected
    for each in made:
        each.connection.close()


@pytest.fixture
def client(connect, http_server):
    return connect(http_server)


@pytest.fixture
@needs("socket")
def doubled(opened, model):
    """(server, its one double, `Infer`), with an executor that the test shapes."""
    from lightning.serving.http.fast_path import Infer, Limits
    from lightning.serving.server import HttpServer

    repository = Repository(opened)
    repository.load("m", model)
    infer = Infer(repository, Limits(max_in_flight=2))
    with HttpServer(infer) as found:
        yield found, opened[0], infer
    repository.close()


class Clock:
    """The time, which a test may set forward; for the modules that see to deadlines."""

    def __init__(self):
        self.ahead_s = 0

    def perf_counter(self):
        return time.perf_counter() + self.ahead_s

    def time_ns(self):
        return time.time_ns() + self.ahead_s * 1_000_000_000


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(scope="session")
def wait_for():
    """Wait until something is so; the clock is only for a test that fails."""

    def waited(true):
        patience = threading.Event()
        for _ in range(12000):
            if true():
                return
            patience.wait(0.005)
        raise AssertionError("it never came to pass")

    return waited


@pytest.fixture(scope="session")
def images():
    """Return three images, which `Client` sends by default."""
    return IMAGES
