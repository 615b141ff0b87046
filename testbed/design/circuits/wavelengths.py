"""Wavelengths on a bidirectional ring (SiP-Ring). The share, the fewest circuits per unit of demand, is maximised.

Each direction has half of the wavelengths. Arcs without a common segment can use the same wavelength, so the number of
circuits over each segment is limited. `solve_bound` solves the linear programme, an upper bound on every allocation.
`allocate_exactly` solves for integers, which is feasible on small rings only.

`allocate_wavelengths` searches for the largest share m at which each pair can have ceil(m x demand) whole circuits. A
pair with only one arc that is short enough leaves no choice. Other pairs divide their circuits between both directions,
first as the linear programme does; then circuits change direction until no segment has too many. Rounding the bound
itself would fail with few wavelengths per pair: one pair rounded to 0 makes the share 0.

Symmetric demands get symmetric circuits: each circuit clockwise from s to d has its counterpart from d to s. Demands
that depend only on the distance get circuits that depend only on the distance, too, unless other circuits have a larger
share. Needs scipy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heapreplace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csc_array, csr_array

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Numerical tolerance of shares and of the solver, in circuits.
_TOLERANCE = 1e-6
#: Up to this number of pairs with two arcs, a linear programme is solved for each share. Above, the bound's is used.
_MAX_PAIRS_RESOLVED = 5_000
#: A share is too large if `_MAX_STARTS` searches fail, each after this number of circuits that change direction.
_MAX_MOVES = 300
_MAX_STARTS = 6
#: Number of moves that one step compares. More moves would be slow on large rings.
_MAX_CANDIDATES = 128
#: Above this number of pairs, `allocate_ring_circuits` uses only the shorter arc of each pair: longer arcs are rare.
_MAX_PAIRS_BOTH_WAYS = 20_000
#: Largest ring for which `allocate_ring_circuits` also tries integer programming, and the seconds it may take.
_MAX_NODES_EXACT = 16
_EXACT_TIME_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Wavelengths:
    """Circuits of an allocation, and its share.

    `circuits`, (2, n, n), are clockwise and counterclockwise, from row to column. `share` is the least number of
    circuits per unit of demand.
    """

    circuits: Floats
    share: float


@dataclass(frozen=True)
class _Programme:
    """Linear programme with one column per arc, or per group of arcs that have the same number of circuits.

    `demand_matrix` tells which demand each column serves, `segment_matrix` which segments it crosses.
    `arcs_by_column` lists the entries of `Wavelengths.circuits` that a column sets: one; two if the demands are
    symmetric; or all of one length and direction.
    """

    demand_matrix: csr_array
    segment_matrix: csc_array
    demands: Floats
    wavelengths_per_direction: int
    arcs_by_column: tuple[tuple[tuple[int, int, int], ...], ...]
    nodes: int

    @cached_property
    def columns_by_demand(self) -> tuple[tuple[int, ...], ...]:
        """Columns that serve each demand, shortest first."""
        lengths = np.asarray(self.segment_matrix.sum(axis=0))
        indices, starts = self.demand_matrix.indices, self.demand_matrix.indptr
        return tuple(
            tuple(sorted(indices[start:end].tolist(), key=lambda column: (float(lengths[column]), column)))
            for start, end in pairwise(starts.tolist())
        )

    def compute_share(self, column_circuits: Floats) -> float:
        """Return the least number of circuits per unit of demand, 0 without demands."""
        return (
            float(((self.demand_matrix @ column_circuits) / self.demands).min()) if self.demands.size else 0.0
        )


def solve_bound(demands: Floats, wavelength_count: int, max_distance: int | None = None) -> Wavelengths:
    """Return the solution of the linear programme: an upper bound on every allocation in whole circuits.

    `demands` is (n, n), in any unit. Arcs are at most `max_distance` segments long. Raises `ValueError` for a demand
    that is negative, from a node to itself or longer than `max_distance`, and unless `wavelength_count` is even and at
    least 2.
    """
    programme = _make_programme(demands, wavelength_count, max_distance)
    circuits, share = _solve_programme(programme)
    return Wavelengths(_make_wavelengths(programme, circuits).circuits, share)


def allocate_exactly(
    demands: Floats, wavelength_count: int, max_distance: int | None = None, time_limit_s: float | None = None
) -> Wavelengths:
    """Return the optimal allocation in whole circuits; the time grows fast beyond 16 nodes.

    After `time_limit_s`, return the best allocation so far. Raises `RuntimeError` if there is none, and `ValueError` as
    `solve_bound` does.
    """
    programme = _make_programme(demands, wavelength_count, max_distance)
    return _make_wavelengths(
        programme, np.round(_solve_programme(programme, is_integral=True, time_limit_s=time_limit_s)[0])
    )


def allocate_wavelengths(
    demands: Floats, wavelength_count: int, max_distance: int | None = None
) -> Wavelengths:
    """Return whole circuits close to the bound; a thousand nodes take seconds.

    Remaining wavelengths go to the pairs of least share, and among these to the shortest arc. So many pairs have a
    circuit even if no allocation serves all. Raises `ValueError` as `solve_bound` does.
    """
    programme = _make_programme(demands, wavelength_count, max_distance)
    column_circuits = _round_circuits(programme)
    # An antipodal pair of symmetric demands would get a circuit in both directions at once: too coarse.
    has_antipodal_pairs = len(demands) % 2 == 0 and demands[0, len(demands) // 2] > 0
    if _is_circulant(demands) and not has_antipodal_pairs:
        circulant_programme = _make_programme(demands, wavelength_count, max_distance, is_circulant=True)
        circulant_column_circuits = _round_circuits(circulant_programme)
        if (
            circulant_programme.compute_share(circulant_column_circuits)
            >= programme.compute_share(column_circuits)
            > 0
        ):
            return _make_wavelengths(circulant_programme, circulant_column_circuits)
    return _make_wavelengths(programme, column_circuits)


def allocate_ring_circuits(
    demand_bytes: Floats, wavelength_count: int, max_distance: int | None = None, *, is_exact: bool = True
) -> Integers:
    """Return the number of circuits from row to column, (n, n), summed over both directions.

    Pairs further apart than `max_distance` segments get 0, and the diagonal of `demand_bytes` is ignored. If there are
    too few wavelengths for a circuit per pair, the nearest pairs come first. With `is_exact`, rings
    of up to 16 nodes also try integer programming for at most two seconds. More than 20,000 pairs use the shorter arc
    only. Raises `ValueError` for negative demands, and unless `wavelength_count` is even and at least 2.
    """
    node_count = len(demand_bytes)
    forward_distance = (np.arange(node_count) - np.arange(node_count)[:, None]) % node_count
    distance = np.minimum(forward_distance, node_count - forward_distance)
    distance_limit = node_count if max_distance is None else max_distance
    demands = np.where((distance > 0) & (distance <= distance_limit), demand_bytes, 0.0)
    # Segments that one circuit for each pair would cross, by distance. Drop the distances that exceed all wavelengths.
    crossed_segment_counts = np.bincount(distance[demands > 0], minlength=1) * np.arange(
        distance[demands > 0].max(initial=0) + 1
    )
    if crossed_segment_counts.sum() > wavelength_count * node_count:
        distance_limit = int(np.argmax(np.cumsum(crossed_segment_counts) > wavelength_count * node_count))
        demands[distance > distance_limit] = 0.0
        max_distance = distance_limit
    elif np.count_nonzero(demands) > _MAX_PAIRS_BOTH_WAYS:
        max_distance = min(distance_limit, node_count // 2)
    allocation = allocate_wavelengths(demands, wavelength_count, max_distance)
    if is_exact and node_count <= _MAX_NODES_EXACT:
        allocation = _improve_exactly(_make_programme(demands, wavelength_count, max_distance), allocation)
    return np.asarray(allocation.circuits.sum(axis=0).round(), np.int64)


def _improve_exactly(programme: _Programme, rounded_allocation: Wavelengths) -> Wavelengths:
    """Return the result of integer programming if it is in time and has a larger share, else `rounded_allocation`."""
    shares = _list_shares(programme, _solve_programme(programme)[1])
    if not shares.size or rounded_allocation.share >= (1 - _TOLERANCE) * shares[-1]:
        return rounded_allocation
    try:
        exact_circuits = np.round(
            _solve_programme(programme, is_integral=True, time_limit_s=_EXACT_TIME_LIMIT_S)[0]
        )
    except RuntimeError:
        return rounded_allocation
    if programme.compute_share(exact_circuits) <= rounded_allocation.share * (1 + _TOLERANCE):
        return rounded_allocation
    return _make_wavelengths(programme, _fill_segments(programme, exact_circuits))


def _make_programme(
    demands: Floats, wavelength_count: int, max_distance: int | None, *, is_circulant: bool = False
) -> _Programme:
    node_count = len(demands)
    if demands.shape != (node_count, node_count) or (demands < 0).any() or np.diag(demands).any():
        raise ValueError("demands must be a square matrix of numbers of 0 or more, with 0 on the diagonal")
    if wavelength_count < 2 or wavelength_count % 2:
        raise ValueError(f"{wavelength_count} wavelengths: the number must be even, half for each direction")
    max_length = node_count - 1 if max_distance is None else max_distance
    # Both directions of a symmetric pair are one unknown of the programme, so their circuits are symmetric, too.
    is_symmetric = bool((demands == demands.T).all())
    arcs = [
        (direction_bit, int(source), int(target))
        for source, target in np.argwhere(demands > 0)
        for direction_bit, length in enumerate(
            ((target - source) % node_count, (source - target) % node_count)
        )
        if length <= max_length and not (is_symmetric and direction_bit)
    ]
    return _assemble_programme(
        demands, wavelength_count // 2, arcs, is_symmetric=is_symmetric, is_circulant=is_circulant
    )


def _assemble_programme(
    demands: Floats,
    wavelengths_per_direction: int,
    arcs: list[tuple[int, int, int]],
    *,
    is_symmetric: bool,
    is_circulant: bool,
) -> _Programme:
    from scipy.sparse import csc_array, csr_array

    node_count = len(demands)

    def make_canonical_pair(source: int, target: int) -> tuple[int, int]:
        if is_circulant:
            source, target = 0, (target - source) % node_count
            return (0, min(target, node_count - target)) if is_symmetric else (0, target)
        return (min(source, target), max(source, target)) if is_symmetric else (source, target)

    index_by_pair: dict[tuple[int, int], int] = {}
    demand_amounts: list[float] = []
    for source, target in np.argwhere(demands > 0).tolist():
        key = make_canonical_pair(source, target)
        if key not in index_by_pair:
            index_by_pair[key] = len(demand_amounts)
            demand_amounts.append(float(demands[source, target]))
    arcs_by_column: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
    for direction_bit, source, target in arcs:
        column_key = (
            (direction_bit, 0, (target - source) % node_count)
            if is_circulant
            else (direction_bit, source, target)
        )
        arcs_by_column.setdefault(column_key, []).append((direction_bit, source, target))
    demand_rows = [index_by_pair[make_canonical_pair(source, target)] for _, source, target in arcs_by_column]
    missing_rows = set(range(len(demand_amounts))) - set(demand_rows)
    if missing_rows:
        raise ValueError(
            f"{len(missing_rows)} pairs are further apart than the longest arc: allow longer arcs or place them closer"
        )
    segments = [
        np.concatenate([_list_segments(arc, node_count) for arc in column_arcs])
        for column_arcs in arcs_by_column.values()
    ]
    columns = np.repeat(np.arange(len(arcs_by_column)), [len(column_arcs) for column_arcs in segments])
    crossed_segments = np.concatenate(segments) if segments else np.zeros(0, np.int64)
    return _Programme(
        csr_array(
            (np.ones(len(demand_rows)), (demand_rows, np.arange(len(demand_rows)))),
            shape=(len(demand_amounts), len(demand_rows)),
        ),
        csc_array(
            (np.ones(crossed_segments.size), (crossed_segments, columns)),
            shape=(2 * node_count, len(demand_rows)),
        ),
        np.array(demand_amounts),
        wavelengths_per_direction,
        tuple(
            tuple(
                entry
                for direction_bit, source, target in column_arcs
                for entry in ((direction_bit, source, target), (1 - direction_bit, target, source))[
                    : 1 + is_symmetric
                ]
            )
            for column_arcs in arcs_by_column.values()
        ),
        node_count,
    )


def _is_circulant(demands: Floats) -> bool:
    return bool(demands.any()) and bool((np.roll(demands, (1, 1), axis=(0, 1)) == demands).all())


def _list_segments(arc: tuple[int, int, int], node_count: int) -> Integers:
    """Return the segments of an arc. Segment i leads from node i to the next node, segment `node_count` + i back."""
    direction_bit, source, target = arc
    begin_node, end_node = (target, source) if direction_bit else (source, target)
    return (
        direction_bit * node_count
        + (begin_node + np.arange((end_node - begin_node) % node_count)) % node_count
    )


def _solve_programme(
    programme: _Programme, *, is_integral: bool = False, time_limit_s: float | None = None
) -> tuple[Floats, float]:
    """Return the circuits of each column that maximise the share, and the share.

    Raises `RuntimeError` if the solver fails.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, hstack

    arc_count = programme.segment_matrix.shape[1]
    if not arc_count:
        return np.zeros(0), 0.0
    if arc_count == len(programme.demands) and not is_integral:
        # Each pair has one arc: the fullest segment determines the share.
        demand_by_arc = programme.demand_matrix.T @ programme.demands
        share = programme.wavelengths_per_direction / (programme.segment_matrix @ demand_by_arc).max()
        return np.asarray(demand_by_arc * share), float(share)
    segment_count = 2 * programme.nodes
    variable_count = arc_count + segment_count + 1
    # The unknown is the number of circuits of the largest demand: the solver's tolerances are then free of units.
    scaled_demands = programme.demands / programme.demands.max()
    served_shares = hstack(
        [
            programme.demand_matrix,
            csr_array((len(programme.demands), segment_count)),
            csr_array(-scaled_demands[:, None]),
        ],
        format="csr",
    )
    balance = hstack(
        [
            _make_change_matrix(programme.segment_matrix),
            -_make_difference_matrix(segment_count),
            csr_array((segment_count, 1)),
        ],
        format="csr",
    )
    solution = milp(
        -np.eye(1, variable_count, variable_count - 1)[0],
        constraints=[LinearConstraint(served_shares, 0, np.inf), LinearConstraint(balance, 0, 0)],
        integrality=np.concatenate([np.full(arc_count, int(is_integral)), np.zeros(segment_count + 1)]),
        bounds=Bounds(
            0,
            np.concatenate(
                [
                    np.full(arc_count, np.inf),
                    np.full(segment_count, programme.wavelengths_per_direction),
                    [np.inf],
                ]
            ),
        ),
        options={} if time_limit_s is None else {"time_limit": time_limit_s},
    )
    if solution.x is None:
        raise RuntimeError(f"no wavelengths were found; the solver reports: {solution.message}")
    return np.asarray(solution.x[:arc_count]), float(solution.x[-1] / programme.demands.max())


def _make_difference_matrix(segment_count: int) -> Any:
    """Return the matrix that subtracts from each load the previous load, and keeps the first load."""
    from scipy.sparse import eye_array

    return (eye_array(segment_count, format="csr") - eye_array(segment_count, k=-1, format="csr")).tocsr()


def _make_change_matrix(segment_matrix: Any) -> Any:
    """Return the change of load from segment to segment: sparser than the loads, as an arc has few ends."""
    changes = (_make_difference_matrix(segment_matrix.shape[0]) @ segment_matrix).tocsr()
    changes.eliminate_zeros()
    return changes


def _list_shares(programme: _Programme, share_bound: float) -> Floats:
    """Return the shares up to the bound at which some pair has a whole number of circuits, in ascending order."""
    max_counts = np.floor(share_bound * programme.demands + _TOLERANCE).astype(int)
    pairs = np.repeat(np.arange(len(max_counts)), max_counts)
    counts = np.arange(len(pairs)) - np.repeat(np.cumsum(max_counts) - max_counts, max_counts) + 1
    shares = counts / programme.demands[pairs]
    # A share between two of these shares needs the same circuits as the upper one.
    return np.unique(shares)


def _round_circuits(programme: _Programme) -> Floats:
    """Return whole circuits of each column at the largest share that the search finds, and fill the remaining room."""
    fractional_circuits, share_bound = _solve_programme(programme)
    shares = _list_shares(programme, share_bound)
    search = _DirectionSearch(programme, fractional_circuits)
    best_circuits = np.zeros(len(fractional_circuits))
    low_index, high_index = -1, len(shares)
    while high_index - low_index > 1:
        middle_index = (low_index + high_index) // 2
        circuits = search.fit(_count_required(programme, shares[middle_index]))
        if circuits is None:
            high_index = middle_index
        else:
            low_index, best_circuits = middle_index, circuits
    return _fill_segments(programme, best_circuits)


def _count_required(programme: _Programme, share: float) -> Floats:
    return np.maximum(np.ceil(share * programme.demands - _TOLERANCE), 1.0)


class _DirectionSearch:
    """Search for whole circuits that give each pair a required number, divided between both directions."""

    def __init__(self, programme: _Programme, bound: Floats) -> None:
        self._programme = programme
        self._first_columns = np.array([columns[0] for columns in programme.columns_by_demand], int)
        self._has_two_arcs = np.array([len(columns) > 1 for columns in programme.columns_by_demand], bool)
        first_columns = self._first_columns[self._has_two_arcs]
        self._second_columns = np.array(
            [columns[1] for columns in programme.columns_by_demand if len(columns) > 1], int
        )
        total = bound[first_columns] + bound[self._second_columns]
        # Fraction of each pair's circuits that the bound sends the longer way.
        self._longer_fraction = np.divide(
            bound[self._second_columns], total, out=np.zeros(len(first_columns)), where=total > 0
        )
        self._load_changes = (
            programme.segment_matrix[:, self._second_columns] - programme.segment_matrix[:, first_columns]
        ).tocsc()
        self._load_changes_by_segment = self._load_changes.tocsr()

    def fit(self, required_counts: Floats) -> Floats | None:
        """Return circuits of each column that give each pair `required_counts`, or None if the search finds none."""
        circuits = np.zeros(self._programme.segment_matrix.shape[1])
        circuits[self._first_columns] = required_counts
        segment_loads = self._programme.segment_matrix @ circuits
        wavelength_limit = self._programme.wavelengths_per_direction
        if not len(self._second_columns):
            return circuits if (segment_loads <= wavelength_limit).all() else None
        if (
            segment_loads + self._load_changes.minimum(0) @ required_counts[self._has_two_arcs]
            > wavelength_limit
        ).any():
            return None
        max_counts = required_counts[self._has_two_arcs]
        divided_counts = (
            self._divide(segment_loads, max_counts)
            if len(max_counts) <= _MAX_PAIRS_RESOLVED
            else self._longer_fraction * max_counts
        )
        if divided_counts is None:
            return None
        random = np.random.default_rng(0)
        for start_number in range(_MAX_STARTS):
            # Round running sums: any run of consecutive pairs is then off by at most one circuit, and loads by little.
            offset = 0.5 if start_number == 0 else random.random()
            order = np.arange(len(max_counts)) if start_number < 2 else random.permutation(len(max_counts))
            longer_counts = np.zeros(len(max_counts))
            longer_counts[order] = np.diff(
                np.floor(np.cumsum(divided_counts[order]) + offset + _TOLERANCE), prepend=0.0
            )
            repaired_counts = self._repair(
                segment_loads, np.clip(longer_counts, 0, max_counts), max_counts, random
            )
            if repaired_counts is not None:
                circuits[self._second_columns] = repaired_counts
                circuits[self._first_columns[self._has_two_arcs]] = max_counts - repaired_counts
                return circuits
        return None

    def _divide(self, segment_loads: Floats, max_counts: Floats) -> Floats | None:
        """Return the fractional circuits of each pair that go the longer way, or None if no division fits."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array, hstack

        pair_count, segment_count = len(max_counts), len(segment_loads)
        difference_matrix = _make_difference_matrix(segment_count)
        changes = hstack(
            [difference_matrix @ self._load_changes, -difference_matrix, csr_array((segment_count, 1))],
            format="csr",
        )
        spare_wavelengths = hstack(
            [
                csr_array((segment_count, pair_count)),
                _make_identity(segment_count),
                csr_array(-np.ones((segment_count, 1))),
            ],
            format="csr",
        )
        solution = milp(
            np.eye(1, pair_count + segment_count + 1, pair_count + segment_count)[0],
            constraints=[
                LinearConstraint(
                    changes, -(difference_matrix @ segment_loads), -(difference_matrix @ segment_loads)
                ),
                LinearConstraint(spare_wavelengths, -np.inf, self._programme.wavelengths_per_direction),
            ],
            bounds=Bounds(0, np.concatenate([max_counts, np.full(segment_count + 1, np.inf)])),
        )
        if solution.x is None or solution.x[-1] > 1e-5:
            return None
        divided_counts: Floats = np.clip(solution.x[:pair_count], 0, max_counts)
        return divided_counts

    def _repair(
        self, segment_loads: Floats, longer_counts: Floats, max_counts: Floats, random: np.random.Generator
    ) -> Floats | None:
        """Change the direction of single circuits until no segment is too full.

        Return the circuits that go the longer way, or None if a segment stays too full.
        """
        wavelength_limit, longer_counts = self._programme.wavelengths_per_direction, longer_counts.copy()
        segment_loads = segment_loads + self._load_changes @ longer_counts
        free_at_step = np.zeros(len(max_counts), int)
        for step in range(_MAX_MOVES):
            worst_segment = int(segment_loads.argmax())
            if segment_loads[worst_segment] <= wavelength_limit + _TOLERANCE:
                return longer_counts
            start, end = self._load_changes_by_segment.indptr[worst_segment : worst_segment + 2]
            pairs, signs = (
                self._load_changes_by_segment.indices[start:end],
                -np.sign(self._load_changes_by_segment.data[start:end]),
            )
            is_possible = np.where(
                signs > 0, longer_counts[pairs] < max_counts[pairs], longer_counts[pairs] > 0
            )
            is_possible &= (signs != 0) & (free_at_step[pairs] <= step)
            pairs, signs = pairs[is_possible], signs[is_possible]
            if not len(pairs):
                return None
            if len(pairs) > _MAX_CANDIDATES:
                sample = random.choice(len(pairs), _MAX_CANDIDATES, replace=False)
                pairs, signs = pairs[sample], signs[sample]
            loads_after = segment_loads[:, None] + self._load_changes[:, pairs].toarray() * signs
            excess = np.square(np.maximum(loads_after - wavelength_limit, 0)).sum(axis=0)
            near_excess = np.square(np.maximum(loads_after - wavelength_limit + 1, 0)).sum(axis=0)
            best_index = int((excess + 0.01 * near_excess + 1e-3 * random.random(len(pairs))).argmin())
            segment_loads = loads_after[:, best_index]
            longer_counts[pairs[best_index]] += signs[best_index]
            # A pair that moved is locked for a few steps, which prevents cycles.
            free_at_step[pairs[best_index]] = step + 2 + int(random.integers(0, 5))
        return None


def _make_identity(size: int) -> Any:
    from scipy.sparse import eye_array

    return eye_array(size, format="csr")


def _fill_segments(programme: _Programme, circuits: Floats) -> Floats:
    """Return `circuits` plus one circuit after another for the pair of least share that has an arc with room."""
    circuits = circuits.copy()
    free_wavelengths = programme.wavelengths_per_direction - programme.segment_matrix @ circuits
    segment_matrix = programme.segment_matrix
    pair_circuits = programme.demand_matrix @ circuits
    lengths = np.asarray(segment_matrix.sum(axis=0))
    heap = [
        (
            pair_circuits[demand_index] / demand,
            lengths[programme.columns_by_demand[demand_index][0]],
            demand_index,
        )
        for demand_index, demand in enumerate(programme.demands)
    ]
    heapify(heap)
    while heap:
        _, length, demand_index = heap[0]
        for column in programme.columns_by_demand[demand_index]:
            column_slice = slice(segment_matrix.indptr[column], segment_matrix.indptr[column + 1])
            segments, segment_loads = segment_matrix.indices[column_slice], segment_matrix.data[column_slice]
            if (free_wavelengths[segments] >= segment_loads - _TOLERANCE).all():
                circuits[column] += 1
                free_wavelengths[segments] -= segment_loads
                pair_circuits[demand_index] += 1
                heapreplace(
                    heap,
                    (pair_circuits[demand_index] / programme.demands[demand_index], length, demand_index),
                )
                break
        else:
            heappop(heap)
    return circuits


def _make_wavelengths(programme: _Programme, column_circuits: Floats) -> Wavelengths:
    circuits = np.zeros((2, programme.nodes, programme.nodes))
    for count, entries in zip(column_circuits, programme.arcs_by_column, strict=True):
        for entry in entries:
            circuits[entry] += count
    return Wavelengths(circuits, programme.compute_share(column_circuits))
