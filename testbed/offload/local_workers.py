"""A scheduler and workers on this machine: processes of their own, bound to the loopback.

They are of a session of their own, by which their processor time is told from that of the trainer's children. They
end when their standard input does, and so with the trainer, also one that is killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testbed.errors import OffloadError
from testbed.offload.configuration import Tls

START_S = 60.0
LOOPBACK = "127.0.0.1"
UNTIL_INPUT_ENDS = """
import os, runpy, signal, sys, threading, time
def watch():
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(3)
    os._exit(1)
threading.Thread(target=watch, daemon=True).start()
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
"""A program that runs a module of Python until its standard input ends: a pipe that the trainer holds open, or a
session of SSH. The system closes both when the trainer is gone, however it ended."""


@contextmanager
def workers_here(
    count: int, tls: Tls | None = None, *, prefix: Sequence[str] = (), python: str = sys.executable
) -> Iterator[str]:
    """Provide the address of a scheduler with workers of one thread each; `prefix` is put before their commands."""
    with tempfile.TemporaryDirectory(prefix="offload-") as folder, ExitStack() as stack:
        file = Path(folder) / "scheduler.json"
        options = tls_options(tls)
        protocol = "tls" if tls else "tcp"
        scheduler = [*scheduler_command(LOOPBACK, 0, protocol), "--scheduler-file", str(file), *options]
        process = stack.enter_context(_start([*prefix, python, *scheduler], folder))
        address = _address_in(file, process)
        for number in range(count):
            worker = [*prefix, python, *worker_command(address, LOOPBACK, f"worker-{number}"), *options]
            stack.enter_context(_start(worker, folder))
        yield address


def scheduler_command(host: str, port: int, protocol: str) -> list[str]:
    """Return the arguments of Python for a scheduler, bound to one address of its host."""
    bound = ["--host", host, "--port", str(port), "--protocol", protocol, "--no-dashboard"]
    return ["-c", UNTIL_INPUT_ENDS, "distributed.cli.dask_scheduler", *bound]


def worker_command(address: str, host: str, name: str) -> list[str]:
    """Return the arguments of Python for a worker with one thread, bound to one address of its host."""
    bound = ["--host", host, "--name", name, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    return ["-c", UNTIL_INPUT_ENDS, "distributed.cli.dask_worker", address, *bound]


def tls_options(tls: Tls | None) -> list[str]:
    """Return the options of Dask's programs for certificates."""
    if tls is None:
        return []
    return ["--tls-ca-file", str(tls.ca_file), "--tls-cert", str(tls.certificate), "--tls-key", str(tls.key)]


@contextmanager
def _start(command: list[str], folder: str) -> Iterator[subprocess.Popen[bytes]]:
    """Provide a process that ends with the block; what it says stays in a file, for the error."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    log = Path(folder) / "log"
    with log.open("ab") as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    assert process.stdin is not None
    try:
        yield process
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address_in(file: Path, process: subprocess.Popen[bytes]) -> str:
    """Return the address that a scheduler has written. Raises `OffloadError` when it ends before."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        if file.exists() and (text := file.read_text(encoding="utf-8")).rstrip().endswith("}"):
            return str(json.loads(text)["address"])
        time.sleep(0.05)
    said = file.with_name("log").read_text(encoding="utf-8", errors="replace").splitlines()[-3:]
    raise OffloadError(
        "the scheduler did not start here: "
        + " / ".join(said or ["it said nothing"])
        + "; is `distributed` installed?"
    )
