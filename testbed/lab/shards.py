"""Several jobs on one lab: each has hosts of its own, and with them their NICs, circuits and links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from testbed.errors import TopologyError
from testbed.lab.model import Lab


def shard_of(lab: Lab, names: Sequence[str]) -> Lab:
    """Return the lab as one job sees it: its hosts in the given order, node 0 first; all others out of reach.

    Raises `TopologyError` for a host that the lab does not have, or that is named twice.
    """
    by_name = {host.name: host for host in (*lab.hosts, *lab.others)}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise TopologyError(f"{lab.path}: no host {unknown[0]!r}; hosts are {', '.join(by_name)}")
    if len(set(names)) != len(names) or not names:
        raise TopologyError(f"hosts {', '.join(names) or '(none)'}: name each host of the job once")
    others = tuple(host for name, host in by_name.items() if name not in names)
    return replace(lab, hosts=tuple(by_name[name] for name in names), others=others)


def logical_servers_of(lab: Lab) -> int:
    """Return how many logical servers each server of a job is cut into; those of other jobs count.

    Raises `TopologyError` when it is not the same number for all: devices of a job are alike.
    """
    every = Counter(host.server for host in (*lab.hosts, *lab.others) if host.server)
    counts = {host.name: every[host.server] if host.server else 1 for host in lab.hosts}
    if len(set(counts.values())) > 1:
        most, least = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
        cut = f"the server of host {most!r} is {counts[most]} logical ones, that of {least!r} {counts[least]}"
        raise TopologyError(f"{lab.path}: {cut}: name hosts with --hosts-of whose servers are cut alike")
    return next(iter(counts.values()), 1)
