"""What `testbed nccl LAB` and `testbed demo` share: sizes as people write them, and a measurement on a lab."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.options import parse_demands
from testbed.cli.output import DONE, narrate, print_json, print_table
from testbed.design.rings import rings_of
from testbed.design.strides import Method
from testbed.errors import CollectiveError, VerifyFailed
from testbed.lab.inventory import load_lab
from testbed.measure.collectives import CollectiveSpec, Configuration, doubling_sizes, run_collectives
from testbed.measure.job import ONE_RING, all_rings_name
from testbed.measure.modelled import model_collectives
from testbed.measure.store import RunStore
from testbed.operate.session import HostsChoice, design_for, hosts_of, journal_in, open_lab

Sizes = Annotated[str, typer.Option("--sizes", metavar="MIN:MAX", help="Message sizes, doubling: 1KiB:8MiB.")]

_SIZE = re.compile(r"(\d+)\s*(|k|ki|kib|m|mi|mib)b?", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20}


def parse_sizes(text: str) -> tuple[int, ...]:
    """`1KiB:8MiB` as doubling sizes in bytes. Raises `CollectiveError` that shows the form.

    >>> parse_sizes("1KiB:4KiB")
    (1024, 2048, 4096)
    """
    smallest, _, largest = text.partition(":")
    sizes = [_parse_size(word) for word in (smallest, largest or smallest)]
    if not 4 <= sizes[0] <= sizes[1]:
        raise CollectiveError(
            f"--sizes {text!r}: sizes start at 4 bytes and grow; write for example 1KiB:8MiB"
        )
    return doubling_sizes(sizes[0], sizes[1])


def _parse_size(word: str) -> int:
    found = _SIZE.fullmatch(word.strip())
    if found is None:
        raise CollectiveError(f"--sizes: {word!r} is no size; write for example 1KiB:8MiB")
    return int(found[1]) * _FACTORS[found[2][:1].lower()]


def measure_lab(
    lab_file: Path,
    *,
    simplex: bool,
    method: Method,
    demand: list[str] | None,
    hosts: HostsChoice,
    sizes: str,
    deadline_s: float,
    runs_dir: Path,
    as_json: bool,
) -> int:
    """Measure on the circuits that stand: one ring, then all rings of the topology."""
    lab = load_lab(lab_file)
    design = design_for(lab, simplex=simplex, method=method, demands=parse_demands(demand))
    mode = hosts_of(lab, hosts)
    rings = rings_of(design.topology)
    steps = parse_sizes(sizes)
    configurations = [Configuration(ONE_RING, rings[:1], steps)]
    if len(rings) > 1:
        configurations.append(Configuration(all_rings_name(rings), rings, steps))
    with (
        journal_in(runs_dir) as journal,
        open_lab(lab, journal, model_hosts=mode == "model") as session,
        RunStore(runs_dir).begin(lab, lab.simulated, mode, seeds={}) as run,
        narrate() as narrator,
    ):
        verified = session.verify(session.plan(design))
        if not verified.ok:
            first = verified.findings[0]
            raise VerifyFailed(
                f"{len(verified.findings)} findings, the first: {first.kind}: {first.subject}: {first.detail}; "
                "run `testbed apply` for this topology, then measure"
            )
        spec = CollectiveSpec(run.run_id, design.name, tuple(configurations), hosts=mode)
        if session.fleet is None:
            result = model_collectives(lab, design.wiring, design.routes, spec, narrator.tick)
        else:
            result = run_collectives(
                session.fleet,
                lab,
                design.wiring,
                design.routes,
                spec,
                deadline_s=deadline_s,
                on_progress=narrator.tick,
            )
        run.add_timings(result.timings)
        run.add_nic_bytes(result.nic_bytes)
        run.add_versions(result.versions)
    if as_json:
        rows = [asdict(row) for row in result.timings]
        print_json(
            {
                "run_id": run.run_id,
                "lab": lab.name,
                "simulated": lab.simulated,
                "hosts": mode,
                "results": rows,
            }
        )
    else:
        columns = ["configuration", "size (B)", "time (us)", "busbw (Mbit/s)", "link limit"]
        rows_shown = [
            [row.configuration, row.size_bytes, row.time_us, row.busbw_mbps, row.limit_mbps]
            for row in result.timings
        ]
        title = f"{'SIMULATED ' if lab.simulated else ''}AllReduce on {lab.name}, hosts: {mode}"
        print_table(title, columns, rows_shown)
    return DONE
