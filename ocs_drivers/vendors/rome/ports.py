"""Port numbers and the device's port names: E ports are inputs, W ports are outputs.

Inputs 1..N are the E ports in the order of their numbers, outputs N+1..N+M the W ports. A device with one matrix has
E1..EN; a second matrix continues the numbers. A logical port is an E and a W port with one name. One request to an AFM
connects two logical ports in both directions:

connection create 1 to 2                           E1 to W2, and E2 to W1
customer        1               1_90            e1     w1        a row of `port show logic table`
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ocs_drivers.errors import PortBusy, PortError
from ocs_drivers.model import CrossConnects, Snapshot, Step

Pair = tuple[int, int]

TIED_HINT = (
    "The device says that its ports are paired, so removing one direction may take down the other: disconnect both "
    "inputs in one command, or allow it with the option one_way=yes."
)

_ROW = re.compile(
    r"\S.*?\s(?P<name>\d{1,9})\s+\S+\s+(?P<east>e\d{1,9})\s+(?P<west>w\d{1,9})\s*", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Layout:
    """All ports that a command can name.

    `matrix_by_port` maps a port to the letter of its matrix, and is empty if the device does not report matrices.
    `ports_by_logical_name` maps a logical name, such as A3, to its E and W ports, in their order.

    >>> layout = Layout(
    ...     ("E1", "E2"), ("W1", "W2"), ports_by_logical_name={"A1": ("E1", "W1"), "A2": ("E2", "W2")}
    ... )
    >>> layout.get_number("W1"), layout.get_name(4), layout.get_pairs("A1", "A2")
    (3, 'W2', ((1, 4), (2, 3)))
    """

    east_ports: tuple[str, ...]
    west_ports: tuple[str, ...]
    matrix_by_port: Mapping[str, str] = field(default_factory=dict)
    ports_by_logical_name: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def get_name(self, port: int) -> str:
        """Return the device's name of a port number."""
        return (self.east_ports + self.west_ports)[port - 1]

    def get_number(self, name: str) -> int:
        """Return the number of a port. Raise `ValueError` for an unknown name."""
        if name in self.west_ports:
            return len(self.east_ports) + self.west_ports.index(name) + 1
        return self.east_ports.index(name) + 1

    def get_names(self, pair: Pair) -> tuple[str, str]:
        """Return the device's names of an input and an output."""
        return self.get_name(pair[0]), self.get_name(pair[1])

    def find_mirror(self, pair: Pair) -> Pair | None:
        """Return the circuit in the other direction between the same two logical ports, or None.

        >>> layout = Layout(
        ...     ("E1", "E2"), ("W1", "W2"), ports_by_logical_name={"1": ("E1", "W1"), "2": ("E2", "W2")}
        ... )
        >>> layout.find_mirror((1, 4)), layout.find_mirror((1, 3))
        ((2, 3), None)
        """
        pairs = self.get_pairs(*self._find_logical_names(pair))
        return pairs[1] if pairs[:1] == (pair,) and pairs[0] != pairs[1] else None

    def find_request_names(self, pairs: Collection[Pair]) -> tuple[str, str] | None:
        """Return the two names in the request for these circuits, or None if they need several requests.

        The names are an E and a W port for one circuit, or two logical ports for a circuit and its mirror.
        """
        if not pairs:
            return None
        first_pair = min(pairs)
        if len(pairs) == 1:
            return self.get_names(first_pair)
        return (
            self._find_logical_names(first_pair)
            if {first_pair, self.find_mirror(first_pair)} == set(pairs)
            else None
        )

    def _find_logical_names(self, pair: Pair) -> tuple[str, str]:
        """Return the logical names of an input and an output, each empty if the port has no logical name."""
        logical_name_by_port = {
            name: logical for logical, names in self.ports_by_logical_name.items() for name in names
        }
        source, output = self.get_names(pair)
        return logical_name_by_port.get(source, ""), logical_name_by_port.get(output, "")

    def is_one_matrix(self, pair: Pair) -> bool:
        """Return True if both ports belong to the same matrix, or if the device does not report their matrices."""
        source, output = (self.matrix_by_port.get(name) for name in self.get_names(pair))
        return source is None or output is None or source == output

    def get_pairs(self, port_a: str, port_b: str) -> tuple[Pair, ...]:
        """Return the circuits of a request for two ports: both directions for logical ports, () if ambiguous.

        A logical port may have several fibres in each matrix. Then the first fibre of one connects to the last of the
        other.
        """
        if port_a in self.east_ports and port_b in self.west_ports:
            return ((self.get_number(port_a), self.get_number(port_b)),)
        if port_a in self.west_ports and port_b in self.east_ports:
            return ((self.get_number(port_b), self.get_number(port_a)),)
        names_a, names_b = (
            self.ports_by_logical_name.get(port_a, ()),
            self.ports_by_logical_name.get(port_b, ()),
        )
        pairs = (*self._match_one_way(names_a, names_b), *self._match_one_way(names_b, names_a))
        expected_count = sum(name in self.east_ports for name in names_a + names_b)
        return pairs if len(pairs) == expected_count else ()

    def _match_one_way(self, source_names: Sequence[str], output_names: Sequence[str]) -> Iterator[Pair]:
        """Yield the circuits from the E ports of one logical port to the W ports of another, matrix by matrix."""
        for matrix in sorted({self.matrix_by_port.get(name, "") for name in source_names}):
            sources = [
                name
                for name in source_names
                if name in self.east_ports and self.matrix_by_port.get(name, "") == matrix
            ]
            outputs = [
                name
                for name in output_names
                if name in self.west_ports and self.matrix_by_port.get(name, "") == matrix
            ]
            if len(sources) != len(outputs) or (len(sources) > 1 and not matrix):
                continue
            for source, output in zip(sources, reversed(outputs), strict=True):
                yield self.get_number(source), self.get_number(output)


def check_one_matrix(steps: Iterable[Step], layout: Layout, *, device: str) -> None:
    """Raise `PortError` for a new circuit between two matrices."""
    for pair in [pair for step in steps if step.kind == "add" for pair in step.pairs.items()]:
        if not layout.is_one_matrix(pair):
            source, output = layout.get_names(pair)
            raise PortError(
                f"{source} and {output} belong to different matrices",
                device=device,
                ports=pair,
                hint="Choose two ports of one matrix.",
            )


def decode_logical_ports(lines: Sequence[str]) -> Mapping[str, tuple[str, str]]:
    """Decode the E and W port of each logical port, without names that are not numbers.

    >>> decode_logical_ports(["customer        1               1_90            e1     w1"])
    {'1': ('E1', 'W1')}
    """
    rows = (match for line in lines if (match := _ROW.fullmatch(line)))
    return {row["name"]: (row["east"].upper(), row["west"].upper()) for row in rows}


def find_two_way_circuits(pairs: Collection[Pair], layout: Layout) -> frozenset[frozenset[Pair]]:
    """Return the pairs of circuits that are each other's mirror.

    >>> layout = Layout(
    ...     ("E1", "E2"), ("W1", "W2"), ports_by_logical_name={"1": ("E1", "W1"), "2": ("E2", "W2")}
    ... )
    >>> [sorted(group) for group in find_two_way_circuits({(1, 4), (2, 3)}, layout)]
    [[(1, 4), (2, 3)]]
    """
    mirrors = ((pair, layout.find_mirror(pair)) for pair in pairs)
    return frozenset(frozenset({pair, mirror}) for pair, mirror in mirrors if mirror and mirror in pairs)


def add_tie_hint(error: PortBusy, current: Snapshot | CrossConnects) -> PortBusy:
    """Return the error itself, with a better hint if it concerns half of a two-way circuit."""
    two_way_pairs = (
        {pair for group in current.tied for pair in group} if isinstance(current, Snapshot) else set()
    )
    if error.ports in two_way_pairs:
        error.hint = TIED_HINT
        error.locate(device=error.device)
    return error


def join_mirrored_steps(steps: Iterable[Step], layout: Layout) -> tuple[Step, ...]:
    """Return the steps, with a circuit and its mirror joined in one step if both are added or both are removed."""
    steps = list(steps)
    moves = {(step.kind, pair) for step in steps for pair in step.pairs.items()}
    joined_steps: list[Step] = []
    joined_moves: set[tuple[str, Pair]] = set()
    for step in steps:
        pairs = set(step.pairs.pairs)
        if any((step.kind, pair) in joined_moves for pair in pairs):
            continue
        for pair in step.pairs.items():
            mirror = layout.find_mirror(pair)
            if mirror is not None and (step.kind, mirror) in moves:
                pairs.add(mirror)
        joined_moves |= {(step.kind, pair) for pair in pairs}
        connections = joined_steps[-1].after if joined_steps else step.before
        updated_pairs = connections.pairs - pairs if step.kind == "remove" else connections.pairs | pairs
        joined_steps.append(
            replace(
                step,
                pairs=CrossConnects(pairs),
                before=connections,
                after=CrossConnects(updated_pairs),
                # One robot makes the circuits one after the other.
                estimated_s=step.estimated_s * len(pairs),
            )
        )
    return tuple(joined_steps)
