"""`python -m sim.twins.polatis`: one simulated switch as a process of its own.

Prints one JSON line when it answers, and ends when its standard input closes or on SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import threading

from sim.models.clock import Clock, RealClock, VirtualClock
from sim.twins.listener import bound_socket
from sim.twins.plant import DEFAULT_INSERTION_LOSS_DB, Plant
from sim.twins.polatis.device import BOOT_MODES
from sim.twins.polatis.twin import PolatisTwin

_ANY_PORT = "127.0.0.1:0"


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m sim.twins.polatis", description=__doc__)
    parser.add_argument(
        "--name", default="ocs1", help="TL1 target identifier; the serial number follows from it"
    )
    parser.add_argument("--inputs", type=int, default=48)
    parser.add_argument("--outputs", type=int, default=48)
    for front in ("scpi", "tl1", "control"):
        parser.add_argument(
            f"--{front}", default=_ANY_PORT, metavar="HOST:PORT", help="port 0 is any free one"
        )
    parser.add_argument("--switch-time-ms", type=float, default=20.0)
    parser.add_argument("--clock", choices=["real", "virtual"], default="real")
    parser.add_argument("--boot-mode", choices=BOOT_MODES, default="DARK")
    parser.add_argument("--user", default="admin")
    parser.add_argument("--password", default="root")
    parser.add_argument("--insertion-loss-db", type=float, default=DEFAULT_INSERTION_LOSS_DB)
    parser.add_argument(
        "--when-occupied", choices=["reject", "replace"], default="reject", help="what ADD does"
    )
    parser.add_argument("--hitless", action="store_true", help="kept circuits keep their light over ONLY")
    parser.add_argument(
        "--separate-lines", action="store_true", help="chained queries answer on lines of their own"
    )
    return parser


def twin_of(options: argparse.Namespace) -> PolatisTwin:
    """The twin that the command line describes, alone with light on all its inputs."""
    clock: Clock = VirtualClock() if options.clock == "virtual" else RealClock()
    switch = {"name": options.name, "insertion_loss_db": options.insertion_loss_db}
    return PolatisTwin(
        options.name,
        options.inputs,
        options.outputs,
        plant=Plant({"switches": [switch], "hosts": []}),
        clock=clock,
        switch_time_s=options.switch_time_ms / 1000,
        boot_mode=options.boot_mode,
        user=options.user,
        password=options.password,
        when_occupied=options.when_occupied,
        hitless=options.hitless,
        separate_lines=options.separate_lines,
    )


async def run(options: argparse.Namespace) -> None:
    """Serve until standard input closes."""
    twin = twin_of(options)
    sockets = {front: _bound(getattr(options, front)) for front in ("scpi", "tl1", "control")}
    addresses = {front: "{}:{}".format(*sock.getsockname()) for front, sock in sockets.items()}
    await twin.serve(**sockets)
    ended = _end_of_input()
    print(json.dumps({"ready": True, "simulated": True, **addresses}), flush=True)
    try:
        await ended.wait()
    finally:
        await twin.close()


def _bound(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return bound_socket(host, int(port))


def _end_of_input() -> asyncio.Event:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    threading.Thread(target=_drain_input, args=(loop, ended), daemon=True).start()
    return ended


def _drain_input(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    # Not sys.stdin: a thread that waits inside its lock would disturb the interpreter's end.
    while os.read(0, 4096):
        pass
    loop.call_soon_threadsafe(ended.set)


if __name__ == "__main__":
    try:
        asyncio.run(run(arguments().parse_args()))
    except OSError as error:
        sys.exit(f"cannot serve: {error}")
