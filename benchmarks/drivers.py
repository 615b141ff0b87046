"""Cost of drivers: a query compared with a raw socket, commands per pair, and leaks after 1,000 applies.

The queries are `*IDN?` over SCPI (plain socket and PyVISA) and `RTRV-HDR` over TL1, through the driver's session. They
alternate with a raw socket that exchanges the same bytes with the same peer. The peer is a blocking loop in a separate
process that answers from a table without any processing.

Commands and leaks are counted on twins in separate processes.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ocs_drivers import Credentials, CrossConnects, OpticalSwitch, open_switch
from ocs_drivers.protocols import scpi
from ocs_drivers.protocols.scpi_session import ScpiSession
from ocs_drivers.protocols.tl1_session import Tl1Session
from ocs_drivers.transports.transport import SocketTransport
from ocs_drivers.transports.visa import VisaTransport

ASKED_RATIO = 2.5
ROUNDS, QUERIES = 40, 100
PAIRS = 48
CYCLES = 1000

PEER = r"""
import os, signal, socket
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
ANSWERS = {b"*IDN?": b"Polatis,I-OST-48x48-LU1-DMHNS,002414,6.5.2.18\r\n"}
FRAME = b"\r\n   OCS1 26-01-31 12:00:00\r\nM  %s COMPLD\r\n;"
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    connection, _ = listener.accept()
    if os.fork():
        connection.close()
        continue
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while line := connection.recv(4096):
        line = line.strip()
        connection.sendall(ANSWERS.get(line) or FRAME % line.split(b":")[3])
    os._exit(0)
"""


def start_process(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextmanager
def peer() -> Iterator[int]:
    """Start the peer, which serves each connection in its own process, and yield its port."""
    with start_process([sys.executable, "-c", PEER]) as process:
        assert process.stdout is not None
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(process.pid, {cpus[-1]})  # the same cores for driver and raw socket
        os.sched_setaffinity(0, {cpus[0]})
        yield int(process.stdout.readline())
        os.sched_setaffinity(0, set(cpus))
        process.terminate()


def raw(port: int, make_query: Callable[[int], bytes]) -> Callable[[int], None]:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(number: int) -> None:
        connection.sendall(make_query(number))
        connection.recv(4096)

    return ask


def time_queries(ask: Callable[[int], object], times: list[float]) -> None:
    """Append the times of `QUERIES` queries in microseconds to `times`."""
    for number in range(QUERIES):
        begin = time.perf_counter()
        ask(number)
        times.append((time.perf_counter() - begin) * 1e6)


def compare_in_turns(one: Callable[[int], object], other: Callable[[int], object]) -> dict[str, float]:
    """Return the median times of both queries in alternating rounds, and the ratio of the medians."""
    ones: list[float] = []
    others: list[float] = []
    for _ in range(ROUNDS):
        time_queries(one, ones)
        time_queries(other, others)
    driver, bare = statistics.median(ones), statistics.median(others)
    return {"driver_us": round(driver, 1), "raw_us": round(bare, 1), "ratio": round(driver / bare, 2)}


def scpi_query(port: int, transport: type[SocketTransport | VisaTransport]) -> dict[str, float]:
    line = transport("127.0.0.1", port, device="peer")
    session = ScpiSession(line, device="peer", timeout_s=5.0)
    session.open()
    bare = raw(port, lambda _: b"*IDN?\n")
    return compare_in_turns(lambda _: session.ask(scpi.IDENTITY_QUERY, scpi.decode_identity), bare)


def tl1_query(port: int) -> dict[str, float]:
    line = SocketTransport("127.0.0.1", port, device="peer")
    session = Tl1Session(line, device="peer", credentials=Credentials("a", "b"), timeout_s=5.0)
    session.open()
    bare = raw(port, lambda number: f"RTRV-HDR:::{number}:;\r\n".encode())
    return compare_in_turns(lambda _: session.ask("RTRV-HDR", len), bare)


# -- twins


class Twin:
    def __init__(self, family: str, *options: str) -> None:
        self.process = start_process([sys.executable, "-m", "sim.twins", family, *options])
        assert self.process.stdout is not None
        self.urls: dict[str, str] = json.loads(self.process.stdout.readline())
        host, _, port = self.urls["control"].rpartition("/")[2].rpartition(":")
        self._control = socket.create_connection((host, int(port)), 30).makefile("rw")

    def do(self, verb: str, **fields: Any) -> dict[str, Any]:
        self._control.write(json.dumps({"do": verb, **fields}) + "\n")
        self._control.flush()
        reply: dict[str, Any] = json.loads(self._control.readline())
        return reply

    def close(self) -> None:
        self._control.close()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)


def shifted(switch: OpticalSwitch, shift: int) -> CrossConnects:
    """Return up to `PAIRS` circuits, as many as the switch has inputs, with the outputs rotated by `shift`."""
    size = switch.capabilities.inputs
    count = min(PAIRS, size)
    return CrossConnects({n: size + 1 + (n - 1 + shift) % count for n in range(1, count + 1)})


MEASURED = {
    # scheme -> family, frontend, pairs, options of the twin
    "polatis+scpi": ("polatis", "scpi", PAIRS, ()),
    "polatis+rest": ("polatis", "rest", PAIRS, ()),
    "polatis+tl1": ("polatis", "tl1", PAIRS, ()),
    "calient+rest": ("calient", "rest", PAIRS, ()),
    "calient+tl1": ("calient", "tl1", PAIRS, ()),
    "glimmerglass+tl1": ("glimmerglass", "tl1", PAIRS, ()),
    "sonic-ocs": ("sonic", "cli", PAIRS, ("--speed", "100")),
    "telescent+cli": ("telescent", "cli", 6, ("--speed", "3000")),
    "rome+cli": ("rome", "cli", 6, ("--speed", "3000")),
}


def commands(scheme: str) -> dict[str, float]:
    """Count the write commands and round trips of an apply to an empty switch.

    Write commands are counted by the guard, which the driver calls before each of them.
    """
    family, frontend, pairs, options = MEASURED[scheme]
    twin = Twin(family, "--size", f"{PAIRS}x{PAIRS}", *options)
    writes: list[float] = []
    try:
        with open_switch(twin.urls[frontend], timeout_s=20.0) as switch:
            target = CrossConnects({n: PAIRS + n for n in range(1, pairs + 1)})
            twin.do("transcript", clear=True)
            begin = time.perf_counter()
            switch.apply(target, guard=lambda: writes.append(0.0))
            seconds = time.perf_counter() - begin
        round_trips = sum(
            entry["direction"] == "in" and entry["data"] != "" for entry in twin.do("transcript")["entries"]
        )
    finally:
        twin.close()
    return {
        "pairs": pairs,
        "write_commands": len(writes),
        "round_trips": round_trips,
        "seconds": round(seconds, 3),
    }


def usage() -> dict[str, int]:
    gc.collect()
    return {
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
        "rss_kib": int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024,
    }


def leaks(url: str) -> dict[str, int]:
    """Measure the growth over `CYCLES` applies, each undone, after a warm-up; every tenth cycle reconnects."""
    with open_switch(url) as switch:
        targets = [shifted(switch, 1), CrossConnects()]
        for cycle in range(10):
            switch.apply(targets[cycle % 2])
        before = usage()
        for cycle in range(CYCLES):
            if cycle % 10 == 0:
                switch.close()
                switch.open()
            for target in targets:
                switch.apply(target)
        after = usage()
    return {name: after[name] - before[name] for name in before}


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with peer() as port:
        queries = {
            "scpi": scpi_query(port, SocketTransport),
            "scpi_visa": scpi_query(port, VisaTransport),
            "tl1": tl1_query(port),
        }
    twin = Twin("polatis", "--size", f"{PAIRS}x{PAIRS}", "--switch-time-ms", "0")
    try:
        growth = {name: leaks(twin.urls[name]) for name in ("scpi", "tl1")}
    finally:
        twin.close()
    counts = {scheme: commands(scheme) for scheme in MEASURED}
    print(
        json.dumps(
            {
                "benchmark": "drivers",
                "apply": counts,
                "asked_ratio": ASKED_RATIO,
                "queries": queries,
                "left_behind": growth,
            }
        )
    )


if __name__ == "__main__":
    main()
