"""Drawing of a topology: nodes on a circle, links coloured by stride. Inline SVG, styled by the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import cos, hypot, pi, sin

from lightbed.wording import format_count
from testbed.measure.report.markup import Markup, tag
from testbed.measure.results.records import StoredTopology

_SIZE_PIXELS = 400
_CENTRE_PIXELS = _SIZE_PIXELS / 2
_RADIUS_PIXELS = 150.0
_NODE_RADIUS = 15.0
_ROW_HEIGHT = 24
_BEND_PIXELS = 26.0  # distance in pixels between the middles of parallel links


@dataclass(frozen=True, slots=True)
class _PlacedLink:
    """A link to draw: its ends, its stride, and the distance of its middle from the straight line."""

    source: int
    target: int
    stride: int
    bend_offset: float


def compute_stride(link: tuple[int, int], node_count: int, *, simplex: bool) -> int:
    """Return the stride of a link: (target - source) mod n. For a duplex link, return the smaller of its two strides.

    >>> compute_stride((0, 11), 12, simplex=False), compute_stride((0, 11), 12, simplex=True)
    (1, 11)
    """
    forward_stride = (link[1] - link[0]) % node_count
    return forward_stride if simplex else min(forward_stride, node_count - forward_stride)


def draw_topology(topology: StoredTopology, host_names: Sequence[str], id_prefix: str) -> Markup:
    """Draw a topology with a legend. `id_prefix` makes element ids unique on the page."""
    strides = sorted(
        {compute_stride(link, topology.nodes, simplex=topology.simplex) for link in topology.links}
    )
    colour_by_stride = {stride: index % 8 for index, stride in enumerate(strides)}
    height = _SIZE_PIXELS + _ROW_HEIGHT * len(strides) + 8
    node_names = host_names if len(host_names) == topology.nodes else list(map(str, range(topology.nodes)))
    kind = "one-way" if topology.simplex else "two-way"
    return tag(
        "svg",
        tag("title", f"Topology {topology.name}", id=f"{id_prefix}-title"),
        tag(
            "desc",
            f"{topology.nodes} nodes on a circle, {format_count(len(topology.links), f'{kind} link')}, "
            f"{'strides' if len(strides) > 1 else 'stride'} {', '.join(map(str, strides))}, "
            f"diameter {topology.diameter}, mean hops {topology.mean_hops:.3f}.",
            id=f"{id_prefix}-desc",
        ),
        _define_arrowhead(id_prefix) if topology.simplex else "",
        tag(
            "g",
            (
                _draw_link(placed_link, topology, colour_by_stride, id_prefix)
                for placed_link in _place_links(topology)
            ),
        ),
        tag("g", (_draw_node(node, topology.nodes, name) for node, name in enumerate(node_names))),
        tag(
            "g",
            (
                _draw_legend_row(row, stride, topology, colour_by_stride[stride])
                for row, stride in enumerate(strides)
            ),
        ),
        viewBox=f"0 0 {_SIZE_PIXELS} {height}",
        role="img",
        aria_labelledby=f"{id_prefix}-title {id_prefix}-desc",
        class_="topology",
    )


def _compute_node_position(node: int, node_count: int, radius: float = _RADIUS_PIXELS) -> tuple[float, float]:
    angle = 2 * pi * node / node_count - pi / 2
    return _CENTRE_PIXELS + radius * cos(angle), _CENTRE_PIXELS + radius * sin(angle)


def _place_links(topology: StoredTopology) -> list[_PlacedLink]:
    """Return the links with their bends. Parallel links are spread evenly about the straight line."""
    link_count_by_pair = Counter(frozenset(link) for link in topology.links)
    placed_count_by_pair: Counter[frozenset[int]] = Counter()
    placed_links = []
    for link in topology.links:
        pair = frozenset(link)
        offset = placed_count_by_pair[pair] - (link_count_by_pair[pair] - 1) / 2
        placed_count_by_pair[pair] += 1
        direction = 1 if link[0] < link[1] else -1
        stride = compute_stride(link, topology.nodes, simplex=topology.simplex)
        placed_links.append(_PlacedLink(link[0], link[1], stride, offset * _BEND_PIXELS * direction))
    return placed_links


def _draw_link(
    placed_link: _PlacedLink, topology: StoredTopology, colour_by_stride: Mapping[int, int], id_prefix: str
) -> Markup:
    start, end = (
        _compute_node_position(placed_link.source, topology.nodes),
        _compute_node_position(placed_link.target, topology.nodes),
    )
    length = hypot(end[0] - start[0], end[1] - start[1]) or 1.0
    unit_vector = ((end[0] - start[0]) / length, (end[1] - start[1]) / length)
    gap_pixels = _NODE_RADIUS + (4 if topology.simplex else 0)
    start = (start[0] + unit_vector[0] * gap_pixels, start[1] + unit_vector[1] * gap_pixels)
    end = (end[0] - unit_vector[0] * gap_pixels, end[1] - unit_vector[1] * gap_pixels)
    control_point = (
        (start[0] + end[0]) / 2 - unit_vector[1] * placed_link.bend_offset * 2,
        (start[1] + end[1]) / 2 + unit_vector[0] * placed_link.bend_offset * 2,
    )
    return tag(
        "path",
        d=f"M{start[0]:.1f} {start[1]:.1f}Q{control_point[0]:.1f} {control_point[1]:.1f} {end[0]:.1f} {end[1]:.1f}",
        class_=f"link s{colour_by_stride[placed_link.stride]}",
        marker_end=f"url(#{id_prefix}-arrow)" if topology.simplex else None,
    )


def _define_arrowhead(id_prefix: str) -> Markup:
    head = tag("path", d="M0 0L8 4L0 8z", fill="context-stroke")
    return tag(
        "defs",
        tag(
            "marker",
            head,
            id=f"{id_prefix}-arrow",
            viewBox="0 0 8 8",
            refX=7,
            refY=4,
            markerWidth=7,
            markerHeight=7,
            orient="auto",
            markerUnits="userSpaceOnUse",
        ),
    )


def _draw_node(node: int, node_count: int, name: str) -> Markup:
    x, y = _compute_node_position(node, node_count)
    if len(name) <= 3:  # fits in the circle
        label = tag("text", name, x=x, y=y, class_="node-name")
    else:
        label_x, label_y = _compute_node_position(node, node_count, _RADIUS_PIXELS + _NODE_RADIUS + 16)
        label = tag("text", name, x=label_x, y=label_y, class_="node-name outside")
    return tag("g", tag("circle", cx=x, cy=y, r=_NODE_RADIUS, class_="node"), label)


def _draw_legend_row(row: int, stride: int, topology: StoredTopology, colour: int) -> Markup:
    y = _SIZE_PIXELS + _ROW_HEIGHT * row + 4
    count = sum(
        compute_stride(link, topology.nodes, simplex=topology.simplex) == stride for link in topology.links
    )
    sign = "+" if topology.simplex else "±"
    text = f"stride {sign}{stride}: {count} {'one-way' if topology.simplex else 'two-way'} links"
    return tag(
        "g",
        tag("line", x1=100, y1=y, x2=136, y2=y, class_=f"link s{colour}"),
        tag("text", text, x=146, y=y + 5, class_="label"),
    )
