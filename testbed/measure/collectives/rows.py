"""Conversion of the rows that rank 0 sends: to timings, and to byte counts that prove which routes the bytes took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from testbed.design.collectives.kind import Pair
from testbed.design.model import Link, Nic, Routes, Wiring
from testbed.design.routing.route_sets import RouteSets
from testbed.errors import WrongResult
from testbed.lab.hosts.forwarding import list_set_addresses
from testbed.lab.model import Lab
from testbed.measure.collectives.spec import CollectiveSpec, Configuration
from testbed.measure.model import FlowFigures, LinkFigures, NicBytes, RankFigures, Timing

Value = TypeVar("Value")

# Processors limited a measurement if the links were not full and some host was short of processors. A host is short of
# processors if all of them, or those of the rank, were busy for `MIN_BUSY_SHARE` of the time, if the hypervisor took
# `MIN_STOLEN_SHARE`, or if the rank's threads waited for a processor for `MIN_WAIT_SHARE`.
MIN_BUSY_SHARE = 0.75
MIN_STOLEN_SHARE = 0.05
MIN_WAIT_SHARE = 0.1
MIN_FULL_LINK_SHARE = 0.9

# Tolerances: missing and surplus bytes of a NIC relative to the ring arithmetic, and bytes of an idle NIC.
MISSING_TOLERANCE, SURPLUS_TOLERANCE = 0.05, 0.1
"""Missing bytes took another route. Surplus bytes are headers and acknowledgements."""
IDLE_TOLERANCE = 0.02
# Smaller messages prove nothing: acknowledgements and headers outweigh the payload.
PROVING_SIZE_BYTES = 1 << 20


def make_timing(
    lab: Lab, wiring: Wiring, routes: Routes, spec: CollectiveSpec, row: Mapping[str, Any]
) -> Timing:
    """Return the timing of a row. Raise `WrongResult` if ranks hold wrong elements."""
    configuration = _find_configuration(spec, row)
    wrong_count_by_rank = {rank: count for rank, count in enumerate(row["wrong"]) if count}
    if wrong_count_by_rank:
        ranks_text = ", ".join(
            f"{count} on rank {rank} ({lab.hosts[rank].name})" for rank, count in wrong_count_by_rank.items()
        )
        raise WrongResult(
            f"{configuration.name}, {row['size']} B: wrong elements in the result: {ranks_text}; "
            "the network or a host corrupts data: do not trust this run"
        )
    collective = configuration.collective
    if spec.sets is None:
        limit_mbps = collective.compute_limit_mbps(wiring, routes, configuration, lab.link.rate_mbps)
    else:  # the limit is the bytes of a node divided by the time of the most loaded link
        share_by_link = _compute_link_shares(wiring, routes, spec, configuration)
        limit_mbps = (
            lab.link.rate_mbps
            * collective.compute_bus_factor(configuration.ranks)
            / max(share_by_link.values())
        )
    algbw_mbps = row["size"] * 8 / row["time_us"]
    busbw_mbps = algbw_mbps * collective.compute_bus_factor(configuration.ranks)
    return Timing(
        run_id=spec.run_id,
        topology=spec.topology,
        configuration=configuration.name,
        collective=collective.name,
        ranks=configuration.ranks,
        rings=configuration.rings_per_node,
        size_bytes=row["size"],
        iterations=row["iterations"],
        time_us=row["time_us"],
        min_us=row["min_us"],
        max_us=row["max_us"],
        algbw_mbps=algbw_mbps,
        busbw_mbps=busbw_mbps,
        limit_mbps=limit_mbps,
        wrong=0,
        cpu_limited=busbw_mbps < MIN_FULL_LINK_SHARE * limit_mbps and is_short_of_processors(row),
        simulated=lab.simulated,
        hosts=spec.hosts_in_use,
        low_us=row["low_us"],
        high_us=row["high_us"],
        processor_s=row["processor_s"],
    )


def _compute_link_shares(
    wiring: Wiring, routes: Routes, spec: CollectiveSpec, configuration: Configuration
) -> Mapping[Link, float]:
    """Return the bytes on each link, as a multiple of a node's tensor, over all sets of routes of the spec."""
    if spec.sets is None:
        return configuration.collective.compute_link_shares(wiring, routes, configuration)
    weights = compute_weights(configuration, spec.sets)
    return sum_link_shares(wiring, spec.sets, configuration, weights)


def is_short_of_processors(row: Mapping[str, Any]) -> bool:
    """Return True if the ranks of a row had to share processors or wait for them."""
    return bool(
        row["processor_busy"] >= MIN_BUSY_SHARE
        or row["processor_stolen"] >= MIN_STOLEN_SHARE
        or row["processor_waited"] >= MIN_WAIT_SHARE
    )


def yield_nic_bytes(
    lab: Lab, wiring: Wiring, routes: Routes, spec: CollectiveSpec, row: Mapping[str, Any]
) -> Iterator[NicBytes]:
    """Yield for each NIC the bytes that it sent and the payload that the plan expects on its link."""
    configuration = _find_configuration(spec, row)
    share_by_link = _compute_link_shares(wiring, routes, spec, configuration)
    retransmitted_bytes_by_link = _sum_retransmitted_bytes(lab, wiring, routes, spec, row)
    for node, host in enumerate(lab.hosts):
        for index, nic in enumerate(host.nics):
            link = wiring.link_by_transmitter.get(Nic(node, index))
            yield NicBytes(
                topology=spec.topology,
                configuration=configuration.name,
                size_bytes=row["size"],
                host=host.name,
                nic=nic.name,
                sent_bytes=row["sent_bytes"][node][nic.name],
                expected_bytes=share_by_link.get(link, 0.0) * row["size"] * row["iterations"]
                if link
                else 0.0,
                retransmitted_bytes=retransmitted_bytes_by_link[link] if link else 0,
            )


def _sum_retransmitted_bytes(
    lab: Lab, wiring: Wiring, routes: Routes, spec: CollectiveSpec, row: Mapping[str, Any]
) -> Counter[Link]:
    """Return the retransmitted bytes of each link. Bytes of a connection count on every link of its path."""
    retransmitted_bytes_by_link: Counter[Link] = Counter()
    for source, peer_counts in enumerate(row["retransmitted_bytes"]):
        for _, _, path, count in _yield_paths(lab, wiring, routes, spec, source, peer_counts):
            retransmitted_bytes_by_link.update(dict.fromkeys(path, count))
    return retransmitted_bytes_by_link


def _yield_paths(
    lab: Lab,
    wiring: Wiring,
    routes: Routes,
    spec: CollectiveSpec,
    source: int,
    peer_values: Iterable[tuple[str, Value]],
) -> Iterator[tuple[int, int, tuple[Link, ...], Value]]:
    """Yield (target, set of routes, path, value) for the observations of a node, which are keyed by peer address.

    Skips addresses outside the topology: the store of the ranks is on the management network.
    """
    node_and_set_by_address = {
        str(address): (node, route_set)
        for node, host in enumerate(lab.hosts)
        for route_set, address in enumerate(list_set_addresses(host))
    }
    links = sort_links(wiring)
    for address, value in peer_values:
        if address in node_and_set_by_address and value:
            target, route_set = node_and_set_by_address[address]
            if spec.sets is None:
                path = routes.path(source, target)
            else:
                path = tuple(links[edge] for edge in spec.sets.find_path(source, target, route_set))
            yield target, route_set, path, value


def yield_rank_figures(lab: Lab, spec: CollectiveSpec, row: Mapping[str, Any]) -> Iterator[RankFigures]:
    """Yield what each rank measured about itself in each iteration of a row."""
    row_key = (spec.topology, row["configuration"], row["size"])
    for rank, observations in enumerate(row.get("seen", ())):
        yield from make_rank_figures(row_key, rank, lab.hosts[rank].name, observations)


def make_rank_figures(
    row_key: tuple[str, str, int], rank: int, host: str, observations: Mapping[str, Any]
) -> Iterator[RankFigures]:
    """Yield what a rank measured about itself. `row_key` is (topology, configuration, size) of the row.

    The processor time of other processes on its host is divided over the iterations in proportion to their length.
    """
    total_s = sum(iteration["seconds"] for iteration in observations["iterations"]) or 1.0
    for iteration, figures in enumerate(observations["iterations"]):
        others_s = observations["others_s"] * figures["seconds"] / total_s
        yield RankFigures(*row_key, iteration=iteration, rank=rank, host=host, others_s=others_s, **figures)


def yield_flow_figures(
    lab: Lab, wiring: Wiring, routes: Routes, spec: CollectiveSpec, row: Mapping[str, Any]
) -> Iterator[FlowFigures]:
    """Yield what each rank measured about its connections in the iterations of a row."""
    row_key = (spec.topology, row["configuration"], row["size"])
    for source, observations in enumerate(row.get("seen", ())):
        for target, route_set, path, figures in _yield_paths(
            lab, wiring, routes, spec, source, observations["flows"]
        ):
            yield make_flow_figures(row_key, lab, (source, target, route_set), path, figures)


def yield_link_figures(
    lab: Lab, wiring: Wiring, spec: CollectiveSpec, row: Mapping[str, Any]
) -> Iterator[LinkFigures]:
    """Yield what each rank measured about its links in the iterations of a row."""
    row_key = (spec.topology, row["configuration"], row["size"])
    for rank, observations in enumerate(row.get("seen", ())):
        yield from make_link_figures(row_key, lab, wiring, rank, observations)


def make_link_figures(
    row_key: tuple[str, str, int], lab: Lab, wiring: Wiring, rank: int, observations: Mapping[str, Any]
) -> Iterator[LinkFigures]:
    """Yield what a rank measured about its links. NICs without a link are skipped."""
    for index, nic in enumerate(lab.hosts[rank].nics):
        if link := wiring.link_by_transmitter.get(Nic(rank, index)):
            figures = observations["nics"][nic.name]
            yield LinkFigures(
                *row_key,
                rank=rank,
                link=lab.link_label(link),
                windows=figures["windows"],
                peak_mbps=figures["peak"] * 8 / 1e6,
                limit_mbps=lab.link.rate_mbps,
            )


def make_flow_figures(
    row_key: tuple[str, str, int],
    lab: Lab,
    flow_key: tuple[int, int, int],
    path: Sequence[Link],
    figures: Mapping[str, Any],
) -> FlowFigures:
    """Return what a rank measured about its connections to another. `flow_key` is (source, target, set of routes)."""
    source, target, route_set = flow_key
    return FlowFigures(
        *row_key,
        source=source,
        target=target,
        route_set=route_set,
        path=", ".join(map(lab.link_label, path)),
        acked_bytes=figures["bytes"],
        sent_bytes=figures["sent"],
        retransmitted_bytes=figures["retransmitted"],
        busy_s=figures["busy_s"],
        limited_s=figures["limited_s"],
        windows=figures["windows"],
        rate_mbps=figures["rate"] * 8 / 1e6,
        peak_mbps=figures["peak"] * 8 / 1e6,
        rtt_s=figures["rtt_s"],
        limit_mbps=lab.link.rate_mbps,
    )


def find_misplaced_traffic(nic_bytes: Sequence[NicBytes]) -> tuple[NicBytes, ...]:
    """Return the counters that contradict the plan, of sizes large enough to prove it.

    A NIC with expected bytes must send at least 95 % of them, and at most 110 % of the expected and retransmitted
    bytes. Any other NIC must send less than 2 % of the bytes of the most loaded link, not counting retransmissions.
    """
    full_link_bytes_by_row: dict[tuple[str, str, int], float] = {}
    for entry in nic_bytes:
        full_link_bytes_by_row[_make_row_key(entry)] = max(
            full_link_bytes_by_row.get(_make_row_key(entry), 0.0), entry.expected_bytes
        )
    proving_entries = (entry for entry in nic_bytes if entry.size_bytes >= PROVING_SIZE_BYTES)
    return tuple(
        entry
        for entry in proving_entries
        if not _is_on_plan(entry, full_link_bytes_by_row[_make_row_key(entry)])
    )


def _is_on_plan(entry: NicBytes, full_link_bytes: float) -> bool:
    if entry.expected_bytes:
        max_bytes = entry.expected_bytes + entry.retransmitted_bytes
        return (
            (1 - MISSING_TOLERANCE) * entry.expected_bytes
            <= entry.sent_bytes
            <= (1 + SURPLUS_TOLERANCE) * max_bytes
        )
    return entry.sent_bytes - entry.retransmitted_bytes < IDLE_TOLERANCE * full_link_bytes


def _make_row_key(entry: NicBytes) -> tuple[str, str, int]:
    return entry.topology, entry.configuration, entry.size_bytes


def _find_configuration(spec: CollectiveSpec, row: Mapping[str, Any]) -> Configuration:
    return next(
        configuration for configuration in spec.configurations if configuration.name == row["configuration"]
    )


def compute_weights(configuration: Configuration, route_sets: RouteSets) -> tuple[tuple[float, ...], ...]:
    """Return the weight of each set of routes, for each ring or pair.

    A library splits the tensor of a ring once, for all hops. So every later set gets its smallest weight on any hop,
    and the first set gets the rest.
    """
    if configuration.pairs:
        return tuple(_get_pair_weights(route_sets, pair) for pair in configuration.pairs)
    return tuple(
        _compute_ring_weights([_get_pair_weights(route_sets, hop) for hop in _yield_hops(ring.order)])
        for ring in configuration.rings
    )


def sum_link_shares(
    wiring: Wiring, route_sets: RouteSets, configuration: Configuration, weights: Sequence[Sequence[float]]
) -> Mapping[Link, float]:
    """Return the bytes on each link, as a multiple of a node's tensor."""
    links, share_by_link = sort_links(wiring), dict[Link, float]()
    for (source, target), tensor_share, set_weights in _yield_messages(configuration, weights):
        for route_set, weight in enumerate(set_weights):
            for edge in route_sets.find_path(source, target, route_set) if weight else ():
                share_by_link[links[edge]] = share_by_link.get(links[edge], 0.0) + tensor_share * weight
    return share_by_link


def sort_links(wiring: Wiring) -> list[Link]:
    """Return the links of a wiring in the order of its topology's edges (see `route_sets.map_routes`)."""
    return sorted(wiring.links, key=lambda link: (link.source.node, link.target.node, link))


def _yield_messages(
    configuration: Configuration, weights: Sequence[Sequence[float]]
) -> Iterator[tuple[Pair, float, Sequence[float]]]:
    """Yield ((source, target), fraction of the source's tensor, weights of the sets of routes) for each message."""
    if configuration.pairs:
        target_count_by_source = Counter(source for source, _ in configuration.pairs)
        for pair, set_weights in zip(configuration.pairs, weights, strict=True):
            yield pair, 1 / target_count_by_source[pair[0]], set_weights
        return
    tensor_share = (
        configuration.collective.compute_bus_factor(configuration.ranks) / configuration.rings_per_node
    )
    for ring, set_weights in zip(configuration.rings, weights, strict=True):
        for hop in _yield_hops(ring.order):
            yield hop, tensor_share, set_weights


def _yield_hops(order: Sequence[int]) -> Iterator[Pair]:
    return pairwise((*order, order[0]))


def _get_pair_weights(route_sets: RouteSets, pair: Pair) -> tuple[float, ...]:
    return tuple(float(weight) for weight in route_sets.weight[:, pair[0], pair[1]])


def _compute_ring_weights(weights_of_hops: Sequence[Sequence[float]]) -> tuple[float, ...]:
    other_weights = [
        min(hop_weights) for hop_weights in zip(*(hop[1:] for hop in weights_of_hops), strict=True)
    ]
    return (round(1 - sum(other_weights), 9), *other_weights)
