"""One rank of a program on this host: start it, forward its output as events, and count the traffic of its NICs.

    python3 guard.py --deadline 30 --renew -- python3 rank.py

The first line of input that is not empty is JSON: `argv`, `folder`, `variables`, `path` (put before `PATH`) and `nics`.
If `folder` does not exist, the program starts in the home directory; with `needs_folder`, it does not start. Empty
lines are heartbeats for the guard; `stop` ends the program. Each line of output is a JSON event: `out` holds a piece of
the program's output, `rank` its exit code and the counters of the NICs, and `spawn` a command that Open MPI wants to
run on another host.

Open MPI calls this file instead of ssh, as `rank.py --spawn HOST WORD ...`. That call reaches the rank through the
socket whose path is in `TESTBED_SPAWN`. Standard library only: this file is copied to the hosts.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

MAX_PIECE_BYTES = 1 << 16
"""Longest piece of a line that one event carries, in bytes."""
WINDOW_S = 0.1
MAX_WINDOWS = 20_000
"""Number of windows kept. Beyond it, pairs of windows are merged, so that a program may run for weeks."""
PR_SET_PDEATHSIG = 1
KILL_DELAY_S = 2.0
"""Time between SIGTERM and SIGKILL for a program that is stopped."""
OUTPUT_GRACE_S = 1.0
"""Time limit for output after the program ends, because a process that it left behind may hold the pipe."""
COUNTERS = (
    "tx_bytes",
    "rx_bytes",
    "tx_packets",
    "rx_packets",
    "tx_errors",
    "rx_errors",
    "tx_dropped",
    "rx_dropped",
)
EXIT_NOT_RUNNABLE, EXIT_NOT_FOUND = 126, 127
"""Exit codes of a shell for a command that cannot be run, and for a command that does not exist."""
SPAWN_VARIABLE = "TESTBED_SPAWN"

_print_lock = threading.Lock()


def print_event(**event: Any) -> None:
    """Print one event as a line."""
    with _print_lock:
        print(json.dumps(event), flush=True)


def read_counters(nics: list[str]) -> dict[str, dict[str, int]]:
    """Return the counters of each NIC. A counter that the kernel does not have is left out."""
    counters_by_nic: dict[str, dict[str, int]] = {}
    for nic in nics:
        counters_by_nic[nic] = {}
        for name in COUNTERS:
            with suppress(OSError, ValueError):
                text = Path(f"/sys/class/net/{nic}/statistics/{name}").read_text(encoding="ascii")
                counters_by_nic[nic][name] = int(text)
    return counters_by_nic


def read_retransmissions() -> int:
    """Return the number of TCP segments that this host has retransmitted since its start, or 0 if unknown."""
    with suppress(OSError, ValueError, KeyError):
        field_lines = [
            line.split() for line in Path("/proc/net/snmp").read_text(encoding="ascii").splitlines()
        ]
        names, values = (fields for fields in field_lines if fields[0] == "Tcp:")
        return int(dict(zip(names, values))["RetransSegs"])  # noqa: B905 - Python 3.9 on older hosts
    return 0


class WindowRates:
    """Rates at which each NIC sends, in windows of at least `WINDOW_S`."""

    def __init__(self, nics: list[str]) -> None:
        self.nics = nics
        self.window_s = WINDOW_S
        self.rates_by_nic: dict[str, list[float]] = {nic: [] for nic in nics}
        self._sent_bytes, self._last_read_s = self._read(), time.monotonic()

    def _read(self) -> dict[str, int]:
        return {nic: counters.get("tx_bytes", 0) for nic, counters in read_counters(self.nics).items()}

    def add_window(self) -> None:
        """Add the rates since the last window."""
        sent_bytes, now_s = self._read(), time.monotonic()
        for nic, rates in self.rates_by_nic.items():
            rates.append((sent_bytes[nic] - self._sent_bytes[nic]) / max(now_s - self._last_read_s, 1e-6))
            if len(rates) > MAX_WINDOWS:
                rate_pairs = zip(rates[::2], rates[1::2])  # noqa: B905 - an odd last one is dropped
                rates[:] = [(left_rate + right_rate) / 2 for left_rate, right_rate in rate_pairs]
                self.window_s = 2 * self.window_s if nic == self.nics[0] else self.window_s
        self._sent_bytes, self._last_read_s = sent_bytes, now_s

    def summarise_rates(self) -> dict[str, dict[str, float]]:
        """Return for each NIC the number of windows, and the 95th percentile of its rates, in bytes/s."""
        return {
            nic: {
                "windows": len(rates),
                "peak": sorted(rates)[int(0.95 * (len(rates) - 1))] if rates else 0.0,
            }
            for nic, rates in self.rates_by_nic.items()
        }


def forward_stream(stream: IO[bytes], name: str) -> None:
    """Send each line of a stream as an event. Bytes that are not UTF-8 are escaped as in Python's file names."""
    while output_piece := stream.readline(MAX_PIECE_BYTES):
        print_event(event="out", stream=name, text=output_piece.decode(errors="surrogateescape"))


def read_spec() -> dict[str, Any] | None:
    """Return the specification of the program, or None if the input ends or says `stop` first."""
    for line in sys.stdin:
        if line.strip() == "stop":
            return None
        if line.strip():
            spec: dict[str, Any] = json.loads(line)
            return spec
    return None


def serve_spawns(path: str) -> None:
    """Send an event for each command that Open MPI wants to run on another host."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(path)
    server.listen(64)

    def accept() -> None:
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as request:
                words = json.loads(request.read())
                print_event(event="spawn", host=words[0], command=" ".join(words[1:]))

    threading.Thread(target=accept, daemon=True).start()


def spawn(arguments: list[str]) -> int:
    """Hand a command for another host to the rank that runs mpirun. `arguments` holds the host, then the command."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(os.environ[SPAWN_VARIABLE])
        connection.sendall(json.dumps(arguments).encode())
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)  # until the event is sent: the rank may end right after this process
    return 0


def make_environment(spec: dict[str, Any]) -> dict[str, str]:
    """Return the environment of the program."""
    environment = {**os.environ, **spec["variables"]}
    if spec["path"]:
        environment["PATH"] = os.pathsep.join([*spec["path"], environment.get("PATH", os.defpath)])
    return environment


class Program:
    """The program of a spec: started, watched, and stopped on request."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.folder = spec["folder"] if os.path.isdir(spec["folder"]) else str(Path.home())  # noqa: PTH112 - "" is none
        self.is_stopped = False
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program. Raises `OSError`."""
        spec, environment = self.spec, make_environment(self.spec)
        if spec.get("needs_folder") and self.folder != spec["folder"]:
            raise NotADirectoryError(0, f"folder {spec['folder']} does not exist on this host")
        if spec.get("spawns"):
            # Beside this file, because the fleet removes that folder at the end.
            scratch_folder = tempfile.mkdtemp(dir=Path(__file__).absolute().parent)
            agent_command = f"{sys.executable} {Path(__file__).absolute()} --spawn"
            hostfile_path = Path(scratch_folder, "hosts")
            hostfile_path.write_text(spec["hostfile"], encoding="ascii")
            environment |= {
                SPAWN_VARIABLE: f"{scratch_folder}/spawn",
                "OMPI_MCA_plm_rsh_agent": agent_command,
                "OMPI_MCA_orte_default_hostfile": str(hostfile_path),
            }
            serve_spawns(environment[SPAWN_VARIABLE])
        libc = ctypes.CDLL(None)
        self.process = subprocess.Popen(
            spec["argv"],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            # Kill the program if this process is killed. Safe: no other thread of this process holds a lock here.
            preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),  # noqa: PLW1509
        )

    def follow_input(self) -> None:
        """Read the input to its end, and stop the program at the line `stop`."""
        for line in sys.stdin:
            if line.strip() == "stop" and self.process is not None:
                self.is_stopped = True
                for signal_number, delay_s in ((signal.SIGTERM, KILL_DELAY_S), (signal.SIGKILL, 0.0)):
                    with suppress(ProcessLookupError):
                        os.killpg(self.process.pid, signal_number)
                    deadline_s = time.monotonic() + delay_s
                    while self.process.poll() is None and time.monotonic() < deadline_s:
                        time.sleep(0.02)

    def watch(self) -> int:
        """Forward the output until the program ends, send its `rank` event, and return its exit code."""
        process, nics = self.process, self.spec["nics"]
        assert process is not None
        counters_before, retransmitted_before, start_s = (
            read_counters(nics),
            read_retransmissions(),
            time.monotonic(),
        )
        readers = [
            threading.Thread(target=forward_stream, args=(stream, name), daemon=True)
            for stream, name in ((process.stdout, "stdout"), (process.stderr, "stderr"))
        ]
        for reader in readers:
            reader.start()
        window_rates = WindowRates(nics)
        while True:
            try:
                process.wait(window_rates.window_s)
                break
            except subprocess.TimeoutExpired:
                window_rates.add_window()
        window_rates.add_window()
        duration_s = time.monotonic() - start_s
        for reader in readers:
            reader.join(OUTPUT_GRACE_S)
        exit_code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        counters_after = read_counters(nics)
        print_event(
            event="rank",
            exit_code=exit_code,
            stopped=self.is_stopped,
            seconds=round(duration_s, 3),
            folder=self.folder,
            nics={
                nic: {
                    name: counters_after[nic][name] - count_before
                    for name, count_before in counters.items()
                    if name in counters_after[nic]
                }
                for nic, counters in counters_before.items()
            },
            rates=window_rates.summarise_rates(),
            retransmitted=read_retransmissions() - retransmitted_before,
        )
        return exit_code


def run_program(spec: dict[str, Any]) -> int:
    """Run the program of a spec to its end, and send its events; return its exit code."""
    program = Program(spec)
    try:
        program.start()
    except OSError as error:
        exit_code = EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_NOT_RUNNABLE
        print_event(event="out", stream="stderr", text=f"{spec['argv'][0]}: {error.strerror}\n")
        empty_report: dict[str, Any] = {"nics": {}, "rates": {}, "retransmitted": 0, "seconds": 0.0}
        print_event(event="rank", exit_code=exit_code, stopped=False, folder=program.folder, **empty_report)
        return exit_code
    threading.Thread(target=program.follow_input, daemon=True).start()
    return program.watch()


def main() -> int:
    """Run the program that the first line of input specifies; return its exit code."""
    if sys.argv[1:2] == ["--spawn"]:
        return spawn(sys.argv[2:])
    print_event(event="ready")
    spec = read_spec()
    if spec is None:
        return 0
    return run_program(spec)


if __name__ == "__main__":
    exit_status = main()
    sys.stdout.flush()
    os._exit(exit_status)  # a thread may still read a pipe that a process left behind holds open
