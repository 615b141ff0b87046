"""Inference packets: LeNet-300-100, exact and noisy, with server and generator on a core each.

Three measurements take turns in one run: a plain echo in Python (receive and send, nothing else), the model alone with
batch 1, and the server under more requests than it can answer. The target rate of the server is 80 % of 1 / (time of
the echo + time of batch 1). Then it gets 80 % of that rate, and 20,000 requests/s, which is 80 % of the rate on the
machine where the targets were set. At these rates nothing may be lost, and the target for the p99 latency, from the
scheduled time of sending, is 2 ms. Both rates are sent in succession to a server with real-time priority (if
permitted), to an ordinary server, and to the echo, whose latency is that of this machine and the generator. Times are
wall-clock times; processor times, which other load affects less, are also reported. With LIGHTBED_DATA, weights are the
published ones and images those of MNIST; otherwise both are random.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from one_thread import THREADS

from lightning.compiler import CompiledModel, Options, compile_network
from lightning.evaluation import load_dataset
from lightning.execution.factory import open_executor
from lightning.load import Outcome, draw_schedule
from lightning.load.datagrams import exchange
from lightning.load.targets import Target
from lightning.networks import load_network
from lightning.serving import Repository
from lightning.serving.packets.server import DatagramServer

ASKED_SHARE = 0.8
ASKED_P99_US = 2000.0
CALM = 0.8
SEEN_PER_S = 20_000.0
SHAPES = ((300, 784), (100, 300), (10, 100))
ROWS = 256
TURNS = 5


def data_folder() -> Path | None:
    return Path(os.environ["LIGHTBED_DATA"]) if "LIGHTBED_DATA" in os.environ else None


def images() -> np.ndarray:
    folder = data_folder()
    if folder is None:
        return np.random.default_rng(0).integers(0, 256, (ROWS, 784)).astype(np.uint8)
    return np.asarray(load_dataset(f"mnist:{folder / 'mnist'}").x[:ROWS]).reshape(ROWS, 784)


def lenet() -> CompiledModel:
    folder = data_folder()
    if folder is not None:
        return compile_network(
            load_network(folder / "lenet" / "lenet_w.npz"), None, Options(scheme="published")
        )
    draw = np.random.default_rng(0)
    weights = {f"w{place + 1}": draw.normal(size=shape) for place, shape in enumerate(SHAPES)}
    with tempfile.TemporaryDirectory() as made:
        file = Path(made) / "lenet.npz"
        np.savez(file, **weights)
        return compile_network(load_network(file), None, Options(scheme="published"))


# ----------------------------------------------------------------------------- the server process


def pin(core: int) -> None:
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {core})


def echo(server: socket.socket) -> None:
    """Answer every datagram with one of the size of an answer."""
    buffer = bytearray(2048)
    view = memoryview(buffer)[:88]
    while True:
        _, sender = server.recvfrom_into(buffer)
        server.sendto(view, sender)


def batch_one(model: CompiledModel, fidelity: str) -> dict[str, float]:
    """Return the wall and processor time per image with batch 1, in s."""
    chain = open_executor(model, fidelity, seed=1).chain
    rows, scores = images(), np.zeros(10, np.float32)
    chain.warm()
    wall, processor = time.perf_counter(), time.process_time()
    for key in range(20 * ROWS):
        chain.compute_scores(rows[key % ROWS], key, scores)
    return {
        "wall_s": (time.perf_counter() - wall) / (20 * ROWS),
        "processor_s": (time.process_time() - processor) / (20 * ROWS),
    }


def realtime_is_permitted() -> bool:
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        return False
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return True


def child(what: str, *, realtime: bool) -> None:
    if what == "echo":
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        server.bind(("127.0.0.1", 0))
        threading.Thread(target=echo, args=(server,), daemon=True).start()
        send(server.getsockname()[1])
        for _ in sys.stdin:
            send({"processor_s": time.process_time()})
        return
    model = lenet()
    repository = Repository(lambda each: open_executor(each, what, seed=1))
    repository.load("lenet", model)
    with DatagramServer(repository, realtime=realtime) as server:
        send(server.address[1])
        for line in sys.stdin:
            if line.strip() == "batch":
                send(batch_one(model, what))
            else:
                counts = server.counts()
                send(
                    {
                        "processor_s": time.process_time(),
                        "balanced": counts.is_balanced,
                        **counts.count_by_outcome(),
                    }
                )


def send(what: object) -> None:
    print(json.dumps(what), flush=True)


# -------------------------------------------------------------------------- the generator process


@dataclass
class Server:
    process: subprocess.Popen[str]
    target: Target

    def ask(self, what: str) -> dict[str, float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(what, file=self.process.stdin, flush=True)
        return dict(json.loads(self.process.stdout.readline()))


@contextlib.contextmanager
def serving(what: str, core: int, *, realtime: bool = False) -> Iterator[Server]:
    command = [sys.executable, __file__, "--child", what, "--core", str(core)]
    command += ["--realtime"] if realtime else []
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | dict.fromkeys(THREADS, "1"),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            yield Server(process, Target("udp", "127.0.0.1", port))
        finally:
            process.stdin.close()


def load(server: Server, rate: float, seconds: float, seed: int, rows: np.ndarray) -> Outcome:
    due = draw_schedule(rate, seconds, seed)
    traces = exchange(server.target, 1, rows, due, first_request=seed << 24)
    return Outcome(server.target.url, rate, seed, traces)


def saturated(server: Server, rate: float, seconds: float, seed: int, rows: np.ndarray) -> dict[str, float]:
    """Measure a server under overload: wall and processor time per answer in s, and the loss."""
    before = server.ask("counts")["processor_s"]
    outcome = load(server, rate, seconds, seed, rows)
    spent = server.ask("counts")["processor_s"] - before
    return {
        "wall_s": 1 / outcome.answered_per_s,
        "processor_s": spent / outcome.answered,
        "loss": outcome.loss,
    }


@dataclass(frozen=True)
class Turn:
    """Measurements within a few seconds of each other, because the speed of a shared machine varies over minutes."""

    echo: dict[str, float]
    alone: dict[str, float]
    served: dict[str, float]
    calm: list[Outcome]
    """Loads at 80 % of the target rate of this turn: real-time server, ordinary server, and echo."""
    seen: list[Outcome]
    """Loads of the same three at 20,000 requests/s."""

    def share(self, key: str) -> float:
        return (self.echo[key] + self.alone[key]) / self.served[key]


def turn(
    realtime: Server, ordinary: Server, plain: Server, seconds: float, number: int, rows: np.ndarray
) -> Turn:
    alone = ordinary.ask("batch")
    echoed = saturated(plain, 200_000, seconds, 10 + number, rows)
    max_rate = 1 / (echoed["wall_s"] + alone["wall_s"])
    served = saturated(ordinary, 1.6 * max_rate, seconds, 20 + number, rows)
    rate = CALM * ASKED_SHARE * max_rate
    calm = [load(each, rate, 2 * seconds, 40 + number, rows) for each in (realtime, ordinary, plain)]
    seen = [load(each, SEEN_PER_S, 2 * seconds, 60 + number, rows) for each in (realtime, ordinary, plain)]
    return Turn(echoed, alone, served, calm, seen)


def latencies(loads: list[Outcome]) -> dict[str, object]:
    return {
        "rates": [round(each.rate) for each in loads],
        "lost": [each.lost for each in loads],
        "asked_lost": 0,
        "p50_us": round(statistics.median(each.compute_percentile_us(50) for each in loads), 1),
        "p99_us": round(statistics.median(each.compute_percentile_us(99) for each in loads), 1),
        "asked_p99_us": ASKED_P99_US,
        "p99_us_of_each": [round(each.compute_percentile_us(99), 1) for each in loads],
        "generator_lag_p99_us": round(statistics.median(each.compute_lag_us(99) for each in loads), 1),
    }


def measure(fidelity: str, core: int, plain: Server, seconds: float, rows: np.ndarray) -> dict[str, object]:
    realtime = realtime_is_permitted()
    with serving(fidelity, core, realtime=realtime) as preferred, serving(fidelity, core) as ordinary:
        for each in (preferred, ordinary, plain):
            load(each, 2000, 0.5, 1, rows)
        turns = [turn(preferred, ordinary, plain, seconds, number, rows) for number in range(TURNS)]
        counts = preferred.ask("counts")
    return {
        "realtime": realtime,
        "echo_us": round(1e6 * statistics.median(each.echo["wall_s"] for each in turns), 2),
        "batch_1_us": round(1e6 * statistics.median(each.alone["wall_s"] for each in turns), 2),
        "answers_per_s": round(statistics.median(1 / each.served["wall_s"] for each in turns)),
        "share": round(statistics.median(each.share("wall_s") for each in turns), 3),
        "share_of_processor_time": round(statistics.median(each.share("processor_s") for each in turns), 3),
        "asked_share": ASKED_SHARE,
        **{
            f"{rate} {who}": latencies([getattr(each, rate)[place] for each in turns])
            for rate in ("calm", "seen")
            for place, who in enumerate(("realtime", "ordinary", "echo"))
        },
        "counts": counts,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--child", choices=("echo", "exact", "noisy"), help=argparse.SUPPRESS)
    options.add_argument("--core", type=int, help=argparse.SUPPRESS)
    options.add_argument("--realtime", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("--seconds", type=float, default=2.0, help="duration of each load")
    arguments = options.parse_args()
    if arguments.child:
        pin(arguments.core)
        child(arguments.child, realtime=arguments.realtime)
        return
    cores = sorted(os.sched_getaffinity(0))
    pin(cores[0])
    rows = images()
    with serving("echo", cores[-1]) as plain:
        results = {
            each: measure(each, cores[-1], plain, arguments.seconds, rows) for each in ("exact", "noisy")
        }
    data = "published weights, MNIST" if data_folder() else "random"
    print(json.dumps({"benchmark": "serving_udp", "data": data, "cores": len(cores), **results}))


if __name__ == "__main__":
    main()
