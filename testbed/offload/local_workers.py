"""A scheduler and workers as processes on this machine, bound to the loopback address.

Each process has its own session, so that its processor time is not counted with the trainer's children. It ends when
its standard input closes, and therefore with the trainer, even if the trainer is killed.
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

START_TIMEOUT_S = 60.0
LOOPBACK = "127.0.0.1"
INPUT_WATCH_PROGRAM = """
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
"""A program that runs a Python module until its standard input closes. The input is the trainer's pipe or SSH session,
which closes whenever the trainer ends."""


@contextmanager
def start_local_workers(
    worker_count: int,
    tls: Tls | None = None,
    *,
    command_prefix: Sequence[str] = (),
    python: str = sys.executable,
) -> Iterator[str]:
    """Start a scheduler and `worker_count` workers with one thread each, and yield the address of the scheduler.

    `command_prefix` precedes their commands. Raises `OffloadError` if the scheduler does not start.
    """
    with tempfile.TemporaryDirectory(prefix="offload-") as folder, ExitStack() as stack:
        scheduler_file = Path(folder) / "scheduler.json"
        options = make_tls_options(tls)
        protocol = "tls" if tls else "tcp"
        scheduler_arguments = [
            *make_scheduler_command(LOOPBACK, 0, protocol),
            "--scheduler-file",
            str(scheduler_file),
            *options,
        ]
        process = stack.enter_context(_start([*command_prefix, python, *scheduler_arguments], folder))
        address = _await_address(scheduler_file, process)
        for number in range(worker_count):
            worker_command = [
                *command_prefix,
                python,
                *make_worker_command(address, LOOPBACK, f"worker-{number}"),
                *options,
            ]
            stack.enter_context(_start(worker_command, folder))
        yield address


def make_scheduler_command(host: str, port: int, protocol: str) -> list[str]:
    """Return the arguments of Python that start a scheduler on one address of its host."""
    options = ["--host", host, "--port", str(port), "--protocol", protocol, "--no-dashboard"]
    return ["-c", INPUT_WATCH_PROGRAM, "distributed.cli.dask_scheduler", *options]


def make_worker_command(address: str, host: str, name: str) -> list[str]:
    """Return the arguments of Python that start a worker with one thread on one address of its host."""
    options = ["--host", host, "--name", name, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    return ["-c", INPUT_WATCH_PROGRAM, "distributed.cli.dask_worker", address, *options]


def make_tls_options(tls: Tls | None) -> list[str]:
    """Return the certificate options of Dask's programs."""
    if tls is None:
        return []
    return ["--tls-ca-file", str(tls.ca_file), "--tls-cert", str(tls.certificate), "--tls-key", str(tls.key)]


@contextmanager
def _start(command: list[str], folder: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that ends with the block. Its output goes to a log file, for error messages."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    log_path = Path(folder) / "log"
    with log_path.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
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


def _await_address(scheduler_file: Path, process: subprocess.Popen[bytes]) -> str:
    """Wait for the scheduler file, and return the address in it.

    Raises `OffloadError` if the scheduler ends, or does not write the file within `START_TIMEOUT_S`.
    """
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s and process.poll() is None:
        # Without a final brace, the scheduler is still writing the file.
        if scheduler_file.exists() and (text := scheduler_file.read_text(encoding="utf-8")).rstrip().endswith(
            "}"
        ):
            return str(json.loads(text)["address"])
        time.sleep(0.05)
    last_lines = (
        scheduler_file.with_name("log").read_text(encoding="utf-8", errors="replace").splitlines()[-3:]
    )
    raise OffloadError(
        "the scheduler did not start on this machine: "
        + " / ".join(last_lines or ["it printed nothing"])
        + "; is `distributed` installed?"
    )
