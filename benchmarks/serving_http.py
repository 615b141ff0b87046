"""Open Inference Protocol over HTTP: LeNet-300-100 with batch 1, compared with MLServer on the same core.

Both servers run on one core, the client on another. The servers get requests in turns. In a turn, each of some
connections sends one request at a time, for some seconds. Ratios are medians over turns. MLServer (`--mlserver PYTHON`,
an interpreter with version 1.7.1) computes the same network with numpy in float32 in its own process, with as little
overhead as its interface allows; our server computes the exact integers of the photonic datapath. MLServer has no
binary tensors over HTTP, so ours are compared with its JSON. The results include the processor time of the server per
request, which other load affects less than rates and latencies. With LIGHTBED_DATA, weights are the published ones and
images those of MNIST; otherwise both are random.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ASKED_JSON = 1.0
ASKED_BINARY = 2.0
SHAPES = ((300, 784), (100, 300), (10, 100))
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
HOST = "127.0.0.1"
WAIT_S = 120

MODEL = """
import json
import numpy as np
from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput

class Lenet(MLModel):
    async def load(self):
        found = np.load(self.settings.parameters.uri)
        self.layers = [np.ascontiguousarray(found[name].T, np.float32) for name in ("w1", "w2", "w3")]
        return True

    async def predict(self, request):
        given = request.inputs[0]
        x = np.array(given.data.root, np.float32).reshape(given.shape)
        for weights in self.layers[:-1]:
            x = np.maximum(x @ weights, 0)
        x = x @ self.layers[-1]
        output = ResponseOutput(name="scores", shape=list(x.shape), datatype="FP32", data=x.ravel().tolist())
        return InferenceResponse(model_name=self.name, outputs=[output])
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mlserver", metavar="PYTHON", help="an interpreter with MLServer")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, default=8)
    options = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        report = measure(Path(folder), options)
    print(json.dumps(report))
    return 0


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    weights, images = data()
    np.savez(folder / "lenet.npz", **weights)
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(running(ours(folder)))
        servers = {"json": own, "binary": own}
        if options.mlserver:
            servers["mlserver"] = stack.enter_context(running(mlserver(folder, options.mlserver)))
        turns_by_server: dict[str, list[Turn]] = {name: [] for name in servers}
        for turn in range(-1, options.turns):  # turn -1 is a warm-up
            for name, server in servers.items():
                requests = [request_of(image, binary=name == "binary") for image in images]
                result = ask(server, requests, options.connections, options.seconds if turn >= 0 else 0.5)
                turns_by_server[name] += [result] if turn >= 0 else []
    return {"benchmark": "serving_http", "connections": options.connections, **summary(turns_by_server)}


def summary(turns_by_server: dict[str, list[Turn]]) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for name, turns in turns_by_server.items():
        report[name] = {
            "requests_per_s": round(statistics.median(each.rate for each in turns)),
            "p50_ms": round(statistics.median(each.quantile_ms(0.5) for each in turns), 3),
            "p99_ms": round(statistics.median(each.quantile_ms(0.99) for each in turns), 3),
            "server_us_per_request": round(statistics.median(each.server_us for each in turns), 1),
            "generator_busy": round(statistics.median(each.busy for each in turns), 2),
        }
    if "mlserver" in turns_by_server:
        for name, asked in (("json", ASKED_JSON), ("binary", ASKED_BINARY)):
            report |= {
                f"{name}_to_mlserver": ratio(turns_by_server, name),
                f"asked_{name}_to_mlserver": asked,
            }
            spent = report["mlserver"]["server_us_per_request"] / report[name]["server_us_per_request"]
            report[f"{name}_to_mlserver_by_processor_time"] = round(spent, 2)
    return report


def ratio(turns_by_server: dict[str, list[Turn]], name: str) -> float:
    """Return the median ratio of the rates in neighbouring turns."""
    pairs = zip(turns_by_server[name], turns_by_server["mlserver"], strict=True)
    return round(statistics.median(mine.rate / other.rate for mine, other in pairs), 2)


def data() -> tuple[dict[str, np.ndarray], np.ndarray]:
    if "LIGHTBED_DATA" not in os.environ:
        random = np.random.default_rng(0)
        weights = {f"w{place}": random.normal(size=shape) for place, shape in enumerate(SHAPES, 1)}
        return weights, random.integers(0, 256, (256, 784), dtype=np.uint8)
    from lightning.evaluation import load_dataset

    folder = Path(os.environ["LIGHTBED_DATA"])
    weights = np.load(folder / "lenet" / "lenet_w.npz")
    images = np.asarray(load_dataset(f"mnist:{folder / 'mnist'}").x[:256], np.uint8).reshape(-1, 784)
    return {name: weights[name] for name in ("w1", "w2", "w3")}, images


# -------------------------------------------------------------------------------- the two servers


@dataclass
class Server:
    """A server: its command, folder and port, and its process while it runs."""

    command: list[str]
    folder: Path
    model: str = "lenet"
    port: int = 0
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    def processor_s(self) -> float:
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ours(folder: Path) -> Server:
    serve = ["serve", str(folder / "lenet.npz"), "--port", "0", "--json"]
    return Server([sys.executable, "-m", "lightning.cli", *serve], folder)


def mlserver(folder: Path, python: str) -> Server:
    port, others = free_port(), (free_port(), free_port())
    (folder / "lenet_runtime.py").write_text(MODEL)
    settings = {"host": HOST, "http_port": port, "grpc_port": others[0], "metrics_port": others[1]}
    alone = {"parallel_workers": 0, "debug": False, "metrics_endpoint": None}
    (folder / "settings.json").write_text(json.dumps(settings | alone))
    model = {"implementation": "lenet_runtime.Lenet", "parameters": {"uri": str(folder / "lenet.npz")}}
    (folder / "model-settings.json").write_text(json.dumps({"name": "lenet"} | model))
    return Server([python, "-m", "mlserver.cli.main", "start", str(folder)], folder, port=port)


def free_port() -> int:
    with socket.socket() as plug:
        plug.bind((HOST, 0))
        return int(plug.getsockname()[1])


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    """Start a server on the first core. The client uses another core, if there is one."""
    paths = str(server.folder) if server.port else str(Path(__file__).parents[1])
    environment = os.environ | dict.fromkeys(THREADS, "1") | {"PYTHONPATH": paths}
    with (server.folder / "log.txt").open("w") as log:
        output = log if server.port else subprocess.PIPE
        server.process = subprocess.Popen(
            server.command, stdout=output, stderr=log, text=True, env=environment
        )
    os.sched_setaffinity(server.process.pid, {0})
    try:
        if not server.port:
            line = server.process.stdout.readline()
            if not line:
                raise SystemExit((server.folder / "log.txt").read_text())
            server.port = int(json.loads(line)["http"].rpartition(":")[2])
        wait_until_ready(server.port)
        yield server
    finally:
        server.process.terminate()
        server.process.communicate(timeout=WAIT_S)


# ------------------------------------------------------------------------------------- the client


@dataclass(frozen=True)
class Turn:
    latencies_s: list[float]
    seconds: float
    server_us: float
    busy: float

    @property
    def rate(self) -> float:
        return len(self.latencies_s) / self.seconds

    def quantile_ms(self, share: float) -> float:
        return 1e3 * float(np.quantile(self.latencies_s, share))


def request_of(image: np.ndarray, *, binary: bool) -> bytes:
    tensor: dict[str, Any] = {"name": "input", "shape": [1, 784], "datatype": "UINT8"}
    document: dict[str, Any] = {"inputs": [tensor]}
    tail, header = b"", ""
    if binary:
        tensor["parameters"] = {"binary_data_size": 784}
        document["parameters"] = {"binary_data_output": True}
        tail = image.tobytes()
    else:
        tensor["data"] = image.tolist()
    text = json.dumps(document, separators=(",", ":")).encode()
    if binary:
        header = f"Inference-Header-Content-Length: {len(text)}\r\n"
    head = (
        f"POST /v2/models/lenet/infer HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n{header}"
    )
    return head.encode() + b"Content-Length: %d\r\n\r\n" % (len(text) + len(tail)) + text + tail


def ask(server: Server, requests: list[bytes], connections: int, seconds: float) -> Turn:
    """Send requests for `seconds`; every connection sends the next one as soon as it has its answer."""
    plugs = [socket.create_connection((HOST, server.port)) for _ in range(connections)]
    poll = select.epoll()
    for plug in plugs:
        plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll.register(plug, select.EPOLLIN)
    by_number = {plug.fileno(): plug for plug in plugs}
    received = dict.fromkeys(by_number, b"")
    sent_at: dict[int, float] = {}
    latencies: list[float] = []
    spent, own, begin = server.processor_s(), time.process_time(), time.perf_counter()
    for place, (number, plug) in enumerate(by_number.items()):
        sent_at[number] = time.perf_counter()
        plug.sendall(requests[place % len(requests)])
    while (now := time.perf_counter()) < begin + seconds:
        for number, _ in poll.poll(1):
            received[number] += by_number[number].recv(65536)
            if is_complete(received[number]):
                now = time.perf_counter()
                latencies.append(now - sent_at[number])
                received[number] = b""
                sent_at[number] = now
                by_number[number].sendall(requests[len(latencies) % len(requests)])
    elapsed_s = now - begin
    spent, own = server.processor_s() - spent, time.process_time() - own
    for plug in plugs:
        plug.close()
    return Turn(latencies, elapsed_s, 1e6 * spent / len(latencies), own / elapsed_s)


def is_complete(answer: bytes) -> bool:
    head, separator, body = answer.partition(b"\r\n\r\n")
    if not separator:
        return False
    if not head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"refused: {answer[:1000]!r}")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    return len(body) >= int(length)


def wait_until_ready(port: int) -> None:
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection(HOST, port, timeout=5)
            connection.request("GET", "/v2/models/lenet/ready")
            if connection.getresponse().status == http.client.OK:
                connection.close()
                return
        time.sleep(0.1)
    raise SystemExit(f"nothing became ready on port {port}")


if __name__ == "__main__":
    sys.exit(main())
