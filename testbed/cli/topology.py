"""`testbed topology`: who should have light to whom, without any lab."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from lightbed.wording import counted
from testbed.cli.options import AsJson, Groups, Method, Simplex
from testbed.cli.output import print_json, print_lines
from testbed.commands.documents import DONE


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("topology")(topology)


def topology(
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Number of hosts.")],
    degree: Annotated[int, typer.Option("--degree", min=1, help="NICs of each host.")],
    simplex: Simplex = False,
    method: Method = "geometric",
    demand: Groups = None,
    as_json: AsJson = False,
) -> int:
    """Find a topology for so many hosts of so many NICs."""
    from testbed.design.patching.wiring import patch_list, wire
    from testbed.design.topology.circulants import as_json as topology_json
    from testbed.design.topology.circulants import find_topology, parse_demands

    demands = parse_demands(demand or ())
    found = find_topology(nodes, degree, simplex=simplex, method=method, demands=demands)
    document = topology_json(found)
    if as_json:
        print_json(document)
        return DONE
    links = counted(len(found.links), "one-way link" if simplex else "duplex link")
    print_lines(
        [
            f"{nodes} nodes, degree {degree}: strides {', '.join(map(str, found.strides))}",
            f"{links}, {_describe_distances(document)}",
            *patch_list(wire(found)),
        ]
    )
    return DONE


def _describe_distances(document: Mapping[str, Any]) -> str:
    diameter, mean, sources = document["diameter"], document["mean_hops"], document.get("hops_sampled_from")
    if sources is None:
        return f"diameter {diameter}, mean hops {mean:.3f}"
    return f"diameter {diameter} or more, mean hops {mean:.2f}, from a sample of {sources} nodes"
