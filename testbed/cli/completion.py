"""Completion of addresses, ports and labs; each function imports what it needs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import typer

Completions = list[tuple[str, str]]
"""Words, with the description that a shell shows beside each."""

PORTS_TIMEOUT_S = 2.0
"""Time limit for reading the ports of a switch. If it passes, there are no completions."""


def complete_addresses(incomplete: str) -> Completions:
    """Return the schemes of addresses that begin with `incomplete`."""
    from ocs_drivers.families import FAMILIES

    return [(f"{scheme}://", "") for scheme in FAMILIES if scheme.startswith(incomplete)]


def complete_families(incomplete: str) -> list[str]:
    """Return the families of simulated switches, and `list`, that begin with `incomplete`."""
    from ocs_drivers.families import FAMILIES, find_twin_family

    return sorted(name for name in {"list", *map(find_twin_family, FAMILIES)} if name.startswith(incomplete))


def complete_lab_files(incomplete: str) -> Completions:
    """Return YAML files and directories that begin with `incomplete`."""
    path = Path(incomplete)
    folder, prefix = (path, "") if incomplete.endswith("/") or not incomplete else (path.parent, path.name)
    return [(path, "") for path in sorted(_find_yaml_files(folder, prefix))]


def _find_yaml_files(folder: Path, prefix: str) -> Iterator[str]:
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.name.startswith(prefix) and (prefix or not entry.name.startswith(".")):
            if entry.is_dir():
                yield f"{entry}/"
            elif entry.suffix in {".yaml", ".yml"}:
                yield str(entry)


def complete_lab_ids(incomplete: str) -> list[str]:
    """Return the ids of simulated labs of this machine that begin with `incomplete`."""
    from testbed.lab.simulated.lifecycle import list_simulated_labs

    return [name for entry in list_simulated_labs() if (name := str(entry["lab_id"])).startswith(incomplete)]


def complete_shutter_states() -> list[str]:
    """Return the states of a shutter."""
    return ["open", "close"]


def complete_ports(ctx: typer.Context, incomplete: str) -> Completions:
    """Return the ports, by number and by name, that begin with `incomplete`."""
    return _read_matching_ports(ctx, incomplete, "")


def complete_inputs(ctx: typer.Context, incomplete: str) -> Completions:
    """Return the inputs that begin with `incomplete`."""
    return _read_matching_ports(ctx, incomplete, "in")


def complete_pairs(ctx: typer.Context, incomplete: str) -> Completions:
    """Return the matching inputs, each with a colon; after a colon, the matching outputs."""
    source, colon, output = incomplete.partition(":")
    if not colon:
        return [(f"{port}:", description) for port, description in _read_matching_ports(ctx, source, "in")]
    return [
        (f"{source}:{port}", description) for port, description in _read_matching_ports(ctx, output, "out")
    ]


def _read_matching_ports(ctx: typer.Context, prefix: str, side: str) -> Completions:
    """Read the ports of the switch in the command line; return none if it does not answer within `PORTS_TIMEOUT_S`."""
    from ocs_drivers import OcsError, open_switch
    from testbed.commands.devices.session import limit_time
    from testbed.errors import TimedOut

    address = ctx.parent.params.get("address") if ctx.parent else None
    if not address:
        return []
    logging.disable()  # log lines would appear inside the command line that the user types
    try:
        with (
            limit_time(PORTS_TIMEOUT_S, address),
            open_switch(address, timeout_s=PORTS_TIMEOUT_S) as switch,
        ):
            port_infos = list(switch.ports().values())
    except (OcsError, TimedOut, OSError):
        return []
    finally:
        logging.disable(logging.NOTSET)
    described_ports = [
        (port, f"{info.name or info.number} {info.side.value}put {info.state.value} {info.label}".strip())
        for info in port_infos
        if info.side.value.startswith(side)
        for port in dict.fromkeys((str(info.number), info.name))
    ]
    return [(port, description) for port, description in described_ports if port and port.startswith(prefix)]
