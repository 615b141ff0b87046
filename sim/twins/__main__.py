"""Run one simulated switch in its own process.

    python -m sim.twins polatis --size 48x48 --fault fail_port=3

When the switch accepts clients, the program prints one JSON line with the address of every frontend, in the form that
drivers accept. The program ends when its standard input closes, or on SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Any

from lightbed.wording import describe_extra
from sim.models.clock import Clock, RealClock, ScaledClock, VirtualClock
from sim.twins.families import FAMILIES, make_twin
from sim.twins.plant import DEFAULT_INSERTION_LOSS_DB, Plant
from sim.twins.switch.device import BOOT_MODES
from sim.twins.switch.settings import SettingError, TwinSettings
from sim.twins.switch.twin import SwitchTwin
from sim.twins.wire.control import Request, VerbError
from sim.twins.wire.listener import bind_socket

PROGRAM = "python -m sim.twins"

_LAST_PORT = 65535

CALLED_AS = "--called-as"
"""First argument if another command starts this program. Its value is the program name in usage and error texts."""


def make_parser(program: str = PROGRAM) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog=program, description=__doc__.partition("\n")[0])
    parser.add_argument("family", nargs="?", choices=FAMILIES, metavar=f"{{{','.join(FAMILIES)}}}")
    parser.add_argument("--list", action="store_true", help="print the names of all families, and exit")
    parser.add_argument("--name", default=f"ocs-{os.getpid()}", help="determines the serial number")
    parser.add_argument("--size", type=_parse_size, default=(48, 48), metavar="INPUTSxOUTPUTS")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address of all frontends and of the control socket"
    )
    parser.add_argument(
        "--port",
        type=_parse_pair,
        action="append",
        default=[],
        metavar="FRONT=PORT",
        help="default: any free port",
    )
    parser.add_argument("--clock", choices=["real", "virtual"], default="real")
    parser.add_argument(
        "--speed", type=_parse_speed, default=1.0, help="speed of the clock relative to real time"
    )
    parser.add_argument("--switch-time-ms", type=float, help="default: depends on the family")
    parser.add_argument("--boot-mode", choices=BOOT_MODES, default="DARK")
    parser.add_argument("--user")
    parser.add_argument("--password")
    parser.add_argument("--insertion-loss-db", type=float, default=DEFAULT_INSERTION_LOSS_DB)
    parser.add_argument(
        "--option",
        type=_parse_pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of the family; repeatable",
    )
    parser.add_argument(
        "--fault",
        type=_parse_fault,
        action="append",
        default=[],
        metavar="FAULT[=VALUE]",
        help='set a fault from the start: refuse, fail_port=3, stuck=[1,9], close_connection={"after_bytes":3}',
    )
    return parser


def _parse_size(text: str) -> tuple[int, int]:
    if not re.fullmatch("[1-9][0-9]{0,3}x[1-9][0-9]{0,3}", text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a size: write INPUTSxOUTPUTS, such as 48x48")
    inputs, _, outputs = text.partition("x")
    return int(inputs), int(outputs)


def _parse_speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < math.inf:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a speed: write a number above 0, such as 100")
    return speed


def _parse_fault(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _parse_pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not NAME=VALUE")
    return name, value


def make_settings(options: argparse.Namespace) -> TwinSettings:
    """Return the settings of a stand-alone twin. All its inputs get light."""
    switch = {"name": options.name, "insertion_loss_db": options.insertion_loss_db}
    inputs, outputs = options.size
    return TwinSettings(
        options.name,
        inputs,
        outputs,
        plant=Plant({"switches": [switch], "hosts": []}),
        clock=_make_clock(options),
        switch_time_s=None if options.switch_time_ms is None else options.switch_time_ms / 1000,
        boot_mode=options.boot_mode,
        user=options.user,
        password=options.password,
        options=dict(options.option),
    )


def _make_clock(options: argparse.Namespace) -> Clock:
    if options.clock == "virtual":
        return VirtualClock()
    return RealClock() if options.speed == 1.0 else ScaledClock(options.speed)


async def run(options: argparse.Namespace) -> None:
    """Serve until standard input closes. If the twin cannot be served, raise `SettingError` or `OSError`."""
    twin = make_twin(options.family, make_settings(options))
    await twin.serve(_bind_sockets(twin, options.host, dict(options.port)), has_serial_lines=True)
    try:
        for (
            name,
            value,
        ) in options.fault:  # only now, because `serve` accepts clients, which would undo the fault `refuse`
            await _set_fault(twin, name, value)
        end_event = _watch_for_end()
        ready_line = {"ready": True, "simulated": True, "family": options.family, **twin.list_addresses()}
        sys.stdout.write(json.dumps(ready_line) + "\n")
        sys.stdout.flush()
        await end_event.wait()
    finally:
        await twin.close()


def _bind_sockets(twin: SwitchTwin, host: str, ports: dict[str, str]) -> dict[str, socket.socket]:
    names = (*twin.socket_frontends, "control")
    for name, port in ports.items():
        if name not in names or not re.fullmatch("[0-9]{1,5}", port) or int(port) > _LAST_PORT:
            raise SettingError(
                f"--port {name}={port}: frontends are {', '.join(names)}, a port is a number from 0 to {_LAST_PORT}"
            )
    return {name: bind_socket(host, int(ports.get(name, "0"))) for name in names}


async def _set_fault(twin: SwitchTwin, name: str, value: str) -> None:
    if name not in twin.faults:
        raise SettingError(f"unknown fault {name!r}; this device knows: {', '.join(sorted(twin.faults))}")
    try:
        fields: Any = json.loads(value) if value else {}
        if not isinstance(fields, dict):
            fields = {twin.faults[name].main_field: fields}
        await twin.set_fault(Request({"fault": name, **fields}))
    except (ValueError, VerbError) as error:
        raise SettingError(f"--fault {name}={value}: {error}") from None


def _watch_for_end() -> asyncio.Event:
    end_event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end_event.set)
    threading.Thread(target=_drain_input, args=(loop, end_event), daemon=True).start()
    return end_event


def _drain_input(loop: asyncio.AbstractEventLoop, end_event: asyncio.Event) -> None:
    # Not sys.stdin: a thread that blocks while it holds the lock of sys.stdin disturbs interpreter shutdown.
    while os.read(0, 4096):
        pass
    loop.call_soon_threadsafe(end_event.set)


def main(words: Sequence[str] | None = None) -> None:
    """Run one twin. Exit with status 2 for invalid settings, or 1 if the twin cannot serve."""
    words = list(sys.argv[1:] if words is None else words)
    program = PROGRAM
    if words[:1] == [CALLED_AS] and len(words) > 1:
        _, program, *words = words
    parser = make_parser(program)
    options = parser.parse_args(words)
    if options.list:
        sys.stdout.write("\n".join(FAMILIES) + "\n")
        return
    if options.family is None:
        parser.error("name a family (--list shows them)")
    try:
        asyncio.run(run(options))
    except SettingError as error:
        parser.error(str(error))
    except ModuleNotFoundError as error:
        parser.exit(1, f"cannot serve: {error}; {describe_extra('sim')}\n")
    except OSError as error:
        parser.exit(1, f"cannot serve: {error}\n")


if __name__ == "__main__":
    main()
