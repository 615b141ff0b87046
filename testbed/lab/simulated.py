"""A simulated lab as a process: the lab file becomes a wiring document, `python -m sim.lab` makes it live.

The process ends, and everything it made with it, when its standard input closes: also when we are killed.
Twins answer on the very addresses of the lab file, so nothing else needs to know that the lab is simulated.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self

import testbed
from testbed.errors import LabStartError
from testbed.lab.checks import endpoint
from testbed.lab.inventory import relocate
from testbed.lab.keys import ensure_key
from testbed.lab.model import FibreEnd, Lab, LabHost, LabNic, LabSwitch

HostsMode = Literal["kernel", "model"]
PLANT_CONTROL_PORT = 7000
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
_LANGUAGE_PORTS = {"polatis+scpi": 5025, "polatis+tl1": 3082}
_NO_KERNEL_HOSTS = frozenset({"not_root", "no_namespaces"})


class _StartRefused(LabStartError):
    """The supervisor said no; `reason` is its own code, `what` its words."""

    def __init__(self, reason: str, what: str, cure: str) -> None:
        self.reason = reason
        self.what = what
        super().__init__(f"the simulated lab did not start: {what}; {cure}")


def wiring_document(lab: Lab, *, hosts: HostsMode = "kernel", public_key: str = "") -> dict[str, Any]:
    """The lab as the document that `python -m sim.lab` reads (its schema lies beside that module)."""
    document: dict[str, Any] = {
        "version": 1,
        "lab": lab.name,
        "hosts_mode": hosts,
        "management": str(lab.management),
        "control": f"{lab.management.network_address + 1}:{PLANT_CONTROL_PORT}",
        "link": {
            "rate_mbps": lab.link.rate_mbps,
            "mtu": lab.link.mtu,
            "transmit_power_dbm": lab.link.transmit_power_dbm,
        },
        "switches": [_switch_entry(lab, switch) for switch in lab.switches],
        "hosts": [_host_entry(host) for host in lab.hosts],
    }
    return document | ({"authorized_key": public_key} if public_key else {})


def _switch_entry(lab: Lab, switch: LabSwitch) -> dict[str, Any]:
    twin = lab.twins[switch.name]
    place = endpoint(switch.address)
    assert place is not None  # checked when the lab was loaded  # noqa: S101
    ports = _LANGUAGE_PORTS | {"polatis+tl1": twin.tl1_port}
    if place.port is not None:
        ports[place.language] = place.port
    return {
        "name": switch.name,
        "kind": "polatis",
        "inputs": switch.inputs,
        "outputs": switch.outputs,
        "scpi": f"{place.host}:{ports['polatis+scpi']}",
        "tl1": f"{place.host}:{ports['polatis+tl1']}",
        "control": f"{place.host}:{twin.control_port}",
        "switch_time_s": twin.switch_time_s,
        "boot_mode": twin.boot_mode,
        "insertion_loss_db": switch.insertion_loss_db,
    }


def _host_entry(host: LabHost) -> dict[str, Any]:
    return {
        "name": host.name,
        "management": str(host.management),
        "ssh_port": host.ssh_port,
        "nics": [_nic_entry(nic) for nic in host.nics],
    }


def _nic_entry(nic: LabNic) -> dict[str, Any]:
    return {"name": nic.name, "transmit": _fibre_entry(nic.transmit), "receive": _fibre_entry(nic.receive)}


def _fibre_entry(fibre: FibreEnd) -> dict[str, Any]:
    return {"switch": fibre.switch, "port": fibre.port, "loss_db": fibre.loss_db}


@dataclass(slots=True)
class SimulatedLab:
    """A simulated lab that is up. A context manager; leaving it tears the lab down unless it is detached.

    `lab` is the lab where it really is (relocated when its subnet was taken or has no namespaces),
    `control` maps each switch and `plant` to the address of its control socket, `reason` says why hosts
    are only modelled when `kernel` was not possible.
    """

    lab: Lab
    hosts: HostsMode
    lab_id: str
    pid: int
    control: Mapping[str, str]
    reason: str
    _process: subprocess.Popen[str]
    _detached: bool

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._detached:
            self.close()

    def close(self) -> None:
        """Close the supervisor's input and wait until it has removed everything. Safe to call again."""
        _stop(self._process)

    @property
    def is_running(self) -> bool:
        """Whether the supervisor still lives."""
        return self._process.poll() is None


def start_lab(
    lab: Lab,
    *,
    hosts: Literal["kernel", "model", "auto"] = "auto",
    detached: bool = False,
    move: bool = False,
    timeout_s: float = START_TIMEOUT_S,
) -> SimulatedLab:
    """Start the simulated lab and return when it is ready.

    `auto` takes kernel hosts where that is possible and says in `reason` why not. `move` allows the next
    free subnet (10.99.0.0/24 and up, 127.99.0.0/24 and up for modelled hosts) when the lab's own is taken.
    Raises `LabStartError`.
    """
    if not lab.simulated:
        raise LabStartError(f"lab '{lab.name}' is real and runs already; only a lab with 'simulated: true' is started")
    public_key = ensure_key(lab.ssh_key)
    mode, reason = _choose_mode(hosts)
    try:
        return _start_somewhere(lab, mode, reason, public_key, detached=detached, move=move, timeout_s=timeout_s)
    except _StartRefused as refused:
        if hosts != "auto" or refused.reason not in _NO_KERNEL_HOSTS:
            raise
        return _start_somewhere(
            lab, "model", refused.what, public_key, detached=detached, move=move, timeout_s=timeout_s
        )


def _choose_mode(hosts: Literal["kernel", "model", "auto"]) -> tuple[HostsMode, str]:
    if hosts != "auto":
        return hosts, "asked for" if hosts == "model" else ""
    if os.geteuid() != 0:
        return "model", "kernel hosts need root"
    return "kernel", ""


def _start_somewhere(
    lab: Lab, mode: HostsMode, reason: str, public_key: str, *, detached: bool, move: bool, timeout_s: float
) -> SimulatedLab:
    """Start in the lab's own subnet or, when allowed, in the first candidate that is free."""
    taken: _StartRefused | None = None
    for subnet in candidate_subnets(lab.management, mode, move=move):
        moved = lab if subnet == lab.management else relocate(lab, subnet)
        document = wiring_document(moved, hosts=mode, public_key=public_key)
        try:
            process, ready = _start(document, detached=detached, timeout_s=timeout_s)
        except _StartRefused as refused:
            if refused.reason != "subnet_taken":
                raise
            taken = refused
            continue
        return SimulatedLab(
            moved, ready["hosts"], ready["lab_id"], process.pid, ready["control"], reason, process, detached
        )
    assert taken is not None  # noqa: S101, at least one candidate was tried
    raise taken


def candidate_subnets(own: IPv4Network, mode: HostsMode, *, move: bool) -> Iterator[IPv4Network]:
    """Subnets to try, in order: the lab's own first; modelled hosts can only live on the loopback network."""
    usable = mode == "kernel" or own.is_loopback
    if usable:
        yield own
    if move or not usable:
        first = IPv4Network("10.99.0.0/16" if mode == "kernel" else "127.99.0.0/16")
        prefix = max(own.prefixlen, 16) if own.prefixlen < 24 else 24  # noqa: PLR2004, a /24 unless the lab is larger
        yield from (subnet for subnet in first.subnets(new_prefix=prefix) if subnet != own)


def _start(document: dict[str, Any], *, detached: bool, timeout_s: float) -> tuple[subprocess.Popen[str], Any]:
    """Start the supervisor on a wiring document; gives the process and its ready line."""
    arguments = ["--detached"] if detached else []
    with tempfile.TemporaryFile("w+", encoding="utf-8") as complaints:
        process = subprocess.Popen(  # noqa: S603, our own module
            _supervisor(arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            env=_environment(),
            # A Ctrl-C at the terminal goes to us alone; the lab must outlive it until we have tidied up.
            start_new_session=True,
        )
        try:
            _send(process, json.dumps(document))
            ready = _ready_line(process, complaints, timeout_s)
        except BaseException:
            _stop(process)
            raise
    if detached:
        _let_go(process)
    return process, ready


def _send(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None  # noqa: S101, opened as a pipe
    try:
        process.stdin.write(line + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        pass  # it ended already; what it printed says why


def _ready_line(process: subprocess.Popen[str], complaints: IO[str], timeout_s: float) -> Any:
    line = _read_line(process, timeout_s)
    try:
        ready = json.loads(line)
    except json.JSONDecodeError:
        raise LabStartError(_silent(process, complaints, line, timeout_s)) from None
    if not ready.get("ready"):
        raise _StartRefused(
            ready.get("code", ""), ready.get("error", "no reason given"), ready.get("cure", "see `testbed doctor`")
        )
    return ready


def _read_line(process: subprocess.Popen[str], timeout_s: float) -> str:
    """The first line of output, or what there is of it by the deadline."""
    assert process.stdout is not None  # noqa: S101, opened as a pipe
    descriptor, received = process.stdout.fileno(), b""
    deadline = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while not received.endswith(b"\n") and selector.select(max(0.0, deadline - time.monotonic())):
            piece = os.read(descriptor, 65536)
            if not piece:
                break
            received += piece
    return received.decode(errors="replace")


def _silent(process: subprocess.Popen[str], complaints: IO[str], line: str, timeout_s: float) -> str:
    complaints.seek(0)
    last = (complaints.read().strip().splitlines() or [line.strip() or "it said nothing"])[-1]
    status = process.poll()
    what = f"was not ready within {timeout_s:g} s" if status is None else f"ended with status {status}"
    return f"the simulated lab {what}: {last}; run `testbed doctor`"


def _let_go(process: subprocess.Popen[str]) -> None:
    """Leave a detached supervisor running: close our ends of its pipes."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _stop(process: subprocess.Popen[str]) -> None:
    """Close the input, wait, and end by pid what has not ended: first gently."""
    if process.stdin is not None and not process.stdin.closed:
        try:
            process.stdin.close()
        except BrokenPipeError:
            pass
    for end in (process.terminate, process.kill):
        try:
            process.wait(STOP_TIMEOUT_S)
            break
        except subprocess.TimeoutExpired:
            end()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def lab_status() -> list[dict[str, Any]]:
    """Every simulated lab on this machine, live or debris, as the supervisor's `--status` lists them."""
    found: list[dict[str, Any]] = json.loads(_ask(["--status"]))
    return found


def lab_down(ids: Iterable[str] = (), *, all_labs: bool = False) -> str:
    """Remove labs whose supervisor is gone; also live ones when named or with `all_labs`."""
    return _ask(["--down", *ids, *(["--all"] if all_labs else [])])


def _ask(arguments: list[str]) -> str:
    done = subprocess.run(  # noqa: S603, our own module
        _supervisor(arguments), capture_output=True, text=True, env=_environment(), timeout=START_TIMEOUT_S, check=False
    )
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise LabStartError(f"`sim.lab {' '.join(arguments)}` failed: {last}; run `testbed doctor`")
    return done.stdout


def _supervisor(arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "sim.lab", *arguments]


def _environment() -> dict[str, str]:
    """Ours, with the directory that holds this very installation first on the import path."""
    root = str(Path(testbed.__file__).resolve().parent.parent)
    rest = os.environ.get("PYTHONPATH", "")
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (root, rest)))}
