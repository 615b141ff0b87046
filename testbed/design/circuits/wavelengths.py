"""Wavelengths on a bidirectional ring (SiP-Ring). The share, the fewest circuits per unit of demand, is maximised.

Each direction has half of the wavelengths. Arcs without a common segment can use the same wavelength, so the number of
circuits over each segment is limited. `solve_bound` solves the linear programme, an upper bound on every allocation.
`allocate_exactly` solves for integers, which is feasible on small rings only.

`allocate` searches for the largest share m at which each pair can have ceil(m x demand) whole circuits. A pair with
only one arc that is short enough leaves no choice. Other pairs divide their circuits between both directions, first as
the linear programme does; then circuits change direction until no segment has too many. Rounding the bound itself
would fail with few wavelengths per pair: one pair rounded to 0 makes the share 0.

Symmetric demands get symmetric circuits: each circuit clockwise from s to d has its counterpart from d to s. Demands
that depend only on the distance get circuits that do so, too, unless other circuits have a larger share. Needs scipy.
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
#: Up to this number of pairs with two arcs, a linear programme is solved for each share. Above, the bound's is reused.
_MAX_PAIRS_RESOLVED = 5_000
#: A share is too large if `_STARTS` searches fail, each after this number of circuits that change direction.
_MAX_MOVES = 300
_STARTS = 6
#: Moves that one step compares: more would be slow on large rings.
_MAX_CANDIDATES = 128
#: Above this number of pairs, `ring_circuits` uses only the shorter arc of each pair: few longer arcs would be used.
_MAX_PAIRS_BOTH_WAYS = 20_000
#: Largest ring for which `ring_circuits` also tries integer programming, and the seconds it may take.
_MAX_NODES_EXACT = 16
_SECONDS_EXACT = 2.0


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

    `serves` holds the demand of each column, `crosses` the segments. `half` is the number of wavelengths in each
    direction. `places` lists the entries of `circuits` that a column sets: one; two if the demands are symmetric; or
    all of one length and direction.
    """

    serves: csr_array
    crosses: csc_array
    demands: Floats
    half: int
    places: tuple[tuple[tuple[int, int, int], ...], ...]
    nodes: int

    @cached_property
    def columns(self) -> tuple[tuple[int, ...], ...]:
        """Columns that serve each demand, shortest first."""
        lengths = np.asarray(self.crosses.sum(axis=0))
        indices, starts = self.serves.indices, self.serves.indptr
        return tuple(
            tuple(sorted(indices[start:end].tolist(), key=lambda column: (float(lengths[column]), column)))
            for start, end in pairwise(starts.tolist())
        )

    def share_of(self, selection: Floats) -> float:
        """Return the least number of circuits per unit of demand, 0 without demands."""
        return float(((self.serves @ selection) / self.demands).min()) if self.demands.size else 0.0


def solve_bound(demands: Floats, wavelength_count: int, max_distance: int | None = None) -> Wavelengths:
    """Return the solution of the linear programme: an upper bound on every allocation in whole circuits.

    `demands` is (n, n), in any unit. Arcs are at most `max_distance` segments long. Raises `ValueError` for a demand
    that is negative, from a node to itself or longer than `max_distance`, and unless `wavelength_count` is even and at
    least 2.
    """
    programme = _make_programme(demands, wavelength_count, max_distance)
    circuits, share = _solve(programme)
    return Wavelengths(_to_wavelengths(programme, circuits).circuits, share)


def allocate_exactly(
    demands: Floats, wavelength_count: int, max_distance: int | None = None, seconds: float | None = None
) -> Wavelengths:
    """Return the optimal allocation in whole circuits; the time grows fast beyond 16 nodes.

    After `seconds`, return the best allocation so far. Raises `RuntimeError` if there is none, and `ValueError` as
    `solve_bound` does.
    """
    programme = _make_programme(demands, wavelength_count, max_distance)
    return _to_wavelengths(programme, np.round(_solve(programme, integral=True, seconds=seconds)[0]))


def allocate(demands: Floats, wavelength_count: int, max_distance: int | None = None) -> Wavelengths:
    """Return whole circuits close to the bound; a thousand nodes take seconds.

    Remaining wavelengths go to the pairs of least share, and among these to the shortest arc. So many pairs have a
    circuit even if no allocation serves all. Raises `ValueError` as `solve_bound` does.
    """
    programme = _make_programme(demands, wavelength_count, max_distance)
    allocation = _round(programme)
    # An antipodal pair of symmetric demands would get a circuit in both directions at once: too coarse.
    antipodal = len(demands) % 2 == 0 and demands[0, len(demands) // 2] > 0
    if _is_circulant(demands) and not antipodal:
        regular = _make_programme(demands, wavelength_count, max_distance, circulant=True)
        alternative = _round(regular)
        if regular.share_of(alternative) >= programme.share_of(allocation) > 0:
            return _to_wavelengths(regular, alternative)
    return _to_wavelengths(programme, allocation)


def ring_circuits(
    demand_bytes: Floats, wavelength_count: int, max_distance: int | None = None, *, exact: bool = True
) -> Integers:
    """Return the number of circuits from row to column, (n, n), summed over both directions.

    Pairs further apart than `max_distance` segments get 0, and the diagonal of `demand_bytes` is ignored. If there are
    too few wavelengths for a circuit per pair, the nearest pairs come first. With `exact`, rings
    of up to 16 nodes also try integer programming for at most two seconds. More than 20,000 pairs use the shorter arc
    only. Raises `ValueError` for negative demands, and unless `wavelength_count` is even and at least 2.
    """
    nodes = len(demand_bytes)
    ahead = (np.arange(nodes) - np.arange(nodes)[:, None]) % nodes
    distance = np.minimum(ahead, nodes - ahead)
    reach = nodes if max_distance is None else max_distance
    demands = np.where((distance > 0) & (distance <= reach), demand_bytes, 0.0)
    # Segments that one circuit for each pair would cross, by distance. Drop the distances that exceed all wavelengths.
    crossed = np.bincount(distance[demands > 0], minlength=1) * np.arange(
        distance[demands > 0].max(initial=0) + 1
    )
    if crossed.sum() > wavelength_count * nodes:
        reach = int(np.argmax(np.cumsum(crossed) > wavelength_count * nodes))
        demands[distance > reach] = 0.0
        max_distance = reach
    elif np.count_nonzero(demands) > _MAX_PAIRS_BOTH_WAYS:
        max_distance = min(reach, nodes // 2)
    allocation = allocate(demands, wavelength_count, max_distance)
    if exact and nodes <= _MAX_NODES_EXACT:
        allocation = _improve(_make_programme(demands, wavelength_count, max_distance), allocation)
    return np.asarray(allocation.circuits.sum(axis=0).round(), np.int64)


def _improve(programme: _Programme, rounded: Wavelengths) -> Wavelengths:
    """Return the result of integer programming if it comes in time and has a larger share, otherwise `rounded`."""
    levels = _list_shares(programme, _solve(programme)[1])
    if not levels.size or rounded.share >= (1 - _TOLERANCE) * levels[-1]:
        return rounded
    try:
        exact = np.round(_solve(programme, integral=True, seconds=_SECONDS_EXACT)[0])
    except RuntimeError:
        return rounded
    if programme.share_of(exact) <= rounded.share * (1 + _TOLERANCE):
        return rounded
    return _to_wavelengths(programme, _fill(programme, exact))


def _make_programme(
    demands: Floats, wavelength_count: int, max_distance: int | None, *, circulant: bool = False
) -> _Programme:
    nodes = len(demands)
    if demands.shape != (nodes, nodes) or (demands < 0).any() or np.diag(demands).any():
        raise ValueError("demands must be a square matrix of numbers of 0 or more, with 0 on the diagonal")
    if wavelength_count < 2 or wavelength_count % 2:
        raise ValueError(f"{wavelength_count} wavelengths: the number must be even, half for each direction")
    longest = nodes - 1 if max_distance is None else max_distance
    # Both directions of a symmetric pair are one unknown of the programme, so their circuits are symmetric, too.
    symmetric = bool((demands == demands.T).all())
    arcs = [
        (direction_bit, int(source), int(target))
        for source, target in np.argwhere(demands > 0)
        for direction_bit, length in enumerate(((target - source) % nodes, (source - target) % nodes))
        if length <= longest and not (symmetric and direction_bit)
    ]
    return _assemble(demands, wavelength_count // 2, arcs, symmetric=symmetric, circulant=circulant)


def _assemble(
    demands: Floats, half: int, arcs: list[tuple[int, int, int]], *, symmetric: bool, circulant: bool
) -> _Programme:
    from scipy.sparse import csc_array, csr_array

    nodes = len(demands)

    def canonical_pair(source: int, target: int) -> tuple[int, int]:
        if circulant:
            source, target = 0, (target - source) % nodes
            return (0, min(target, nodes - target)) if symmetric else (0, target)
        return (min(source, target), max(source, target)) if symmetric else (source, target)

    demand_index: dict[tuple[int, int], int] = {}
    amounts: list[float] = []
    for source, target in np.argwhere(demands > 0).tolist():
        key = canonical_pair(source, target)
        if key not in demand_index:
            demand_index[key] = len(amounts)
            amounts.append(float(demands[source, target]))
    groups: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
    for direction_bit, source, target in arcs:
        key_of_arc = (
            (direction_bit, 0, (target - source) % nodes) if circulant else (direction_bit, source, target)
        )
        groups.setdefault(key_of_arc, []).append((direction_bit, source, target))
    rows = [demand_index[canonical_pair(source, target)] for _, source, target in groups]
    missing = set(range(len(amounts))) - set(rows)
    if missing:
        raise ValueError(
            f"{len(missing)} pairs are further apart than the longest arc: allow longer arcs or place them closer"
        )
    segments = [np.concatenate([_list_segments(arc, nodes) for arc in listed]) for listed in groups.values()]
    columns = np.repeat(np.arange(len(groups)), [len(listed) for listed in segments])
    crossed = np.concatenate(segments) if segments else np.zeros(0, np.int64)
    return _Programme(
        csr_array((np.ones(len(rows)), (rows, np.arange(len(rows)))), shape=(len(amounts), len(rows))),
        csc_array((np.ones(crossed.size), (crossed, columns)), shape=(2 * nodes, len(rows))),
        np.array(amounts),
        half,
        tuple(
            tuple(
                entry
                for direction_bit, source, target in listed
                for entry in ((direction_bit, source, target), (1 - direction_bit, target, source))[
                    : 1 + symmetric
                ]
            )
            for listed in groups.values()
        ),
        nodes,
    )


def _is_circulant(demands: Floats) -> bool:
    return bool(demands.any()) and bool((np.roll(demands, (1, 1), axis=(0, 1)) == demands).all())


def _list_segments(arc: tuple[int, int, int], nodes: int) -> Integers:
    """Return the segments of an arc. Segment i leads from node i to the next node, segment nodes + i back."""
    direction_bit, source, target = arc
    begin_node, end_node = (target, source) if direction_bit else (source, target)
    return direction_bit * nodes + (begin_node + np.arange((end_node - begin_node) % nodes)) % nodes


def _solve(
    programme: _Programme, *, integral: bool = False, seconds: float | None = None
) -> tuple[Floats, float]:
    """Return the circuits of each column that maximise the share, and the share.

    Raises `RuntimeError` if the solver fails.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, hstack

    arcs = programme.crosses.shape[1]
    if not arcs:
        return np.zeros(0), 0.0
    if arcs == len(programme.demands) and not integral:
        # Each pair has one arc: the fullest segment determines the share.
        by_arc = programme.serves.T @ programme.demands
        share = programme.half / (programme.crosses @ by_arc).max()
        return np.asarray(by_arc * share), float(share)
    loads = 2 * programme.nodes
    width = arcs + loads + 1
    # The unknown is the number of circuits of the largest demand: the solver's tolerances are then free of units.
    scaled = programme.demands / programme.demands.max()
    served_shares = hstack(
        [
            programme.serves,
            csr_array((len(programme.demands), loads)),
            csr_array(-scaled[:, None]),
        ],
        format="csr",
    )
    balance = hstack(
        [_make_change_matrix(programme.crosses), -_make_difference_matrix(loads), csr_array((loads, 1))],
        format="csr",
    )
    solution = milp(
        -np.eye(1, width, width - 1)[0],
        constraints=[LinearConstraint(served_shares, 0, np.inf), LinearConstraint(balance, 0, 0)],
        integrality=np.concatenate([np.full(arcs, int(integral)), np.zeros(loads + 1)]),
        bounds=Bounds(0, np.concatenate([np.full(arcs, np.inf), np.full(loads, programme.half), [np.inf]])),
        options={} if seconds is None else {"time_limit": seconds},
    )
    if solution.x is None:
        raise RuntimeError(f"no wavelengths were found; the solver reports: {solution.message}")
    return np.asarray(solution.x[:arcs]), float(solution.x[-1] / programme.demands.max())


def _make_difference_matrix(loads: int) -> Any:
    """Return the matrix that subtracts from each load the one before it; it keeps the first load."""
    from scipy.sparse import eye_array

    return (eye_array(loads, format="csr") - eye_array(loads, k=-1, format="csr")).tocsr()


def _make_change_matrix(crosses: Any) -> Any:
    """Return the change of load from segment to segment: sparser than the loads, as an arc has few ends."""
    changes = (_make_difference_matrix(crosses.shape[0]) @ crosses).tocsr()
    changes.eliminate_zeros()
    return changes


def _list_shares(programme: _Programme, bound: float) -> Floats:
    """Return the shares up to the bound at which some pair has a whole number of circuits, in ascending order."""
    max_counts = np.floor(bound * programme.demands + _TOLERANCE).astype(int)
    pairs = np.repeat(np.arange(len(max_counts)), max_counts)
    counts = np.arange(len(pairs)) - np.repeat(np.cumsum(max_counts) - max_counts, max_counts) + 1
    levels = counts / programme.demands[pairs]
    # A share between two of these needs the same circuits as the upper one.
    return np.unique(levels)


def _round(programme: _Programme) -> Floats:
    """Return whole circuits of each column at the largest share that the search finds, and fill the remaining room."""
    bound, share = _solve(programme)
    levels = _list_shares(programme, share)
    search = _Search(programme, bound)
    best_circuits = np.zeros(len(bound))
    low, high = -1, len(levels)
    while high - low > 1:
        middle = (low + high) // 2
        circuits = search.fit(_count_required(programme, levels[middle]))
        if circuits is None:
            high = middle
        else:
            low, best_circuits = middle, circuits
    return _fill(programme, best_circuits)


def _count_required(programme: _Programme, share: float) -> Floats:
    return np.maximum(np.ceil(share * programme.demands - _TOLERANCE), 1.0)


class _Search:
    """Search for whole circuits that give each pair a required number, divided between both directions."""

    def __init__(self, programme: _Programme, bound: Floats) -> None:
        self._programme = programme
        self._first = np.array([columns[0] for columns in programme.columns], int)
        self._both = np.array([len(columns) > 1 for columns in programme.columns], bool)
        first_columns = self._first[self._both]
        self._second = np.array([columns[1] for columns in programme.columns if len(columns) > 1], int)
        total = bound[first_columns] + bound[self._second]
        # Fraction of each pair's circuits that the bound sends the longer way.
        self._longer = np.divide(
            bound[self._second], total, out=np.zeros(len(first_columns)), where=total > 0
        )
        self._moves = (programme.crosses[:, self._second] - programme.crosses[:, first_columns]).tocsc()
        self._by_segment = self._moves.tocsr()

    def fit(self, need: Floats) -> Floats | None:
        """Return the circuits of each column, `need` circuits for each pair, or None if the search finds none."""
        circuits = np.zeros(self._programme.crosses.shape[1])
        circuits[self._first] = need
        load = self._programme.crosses @ circuits
        half = self._programme.half
        if not len(self._second):
            return circuits if (load <= half).all() else None
        if (load + self._moves.minimum(0) @ need[self._both] > half).any():
            return None
        max_counts = need[self._both]
        divided_counts = (
            self._divide(load, max_counts)
            if len(max_counts) <= _MAX_PAIRS_RESOLVED
            else self._longer * max_counts
        )
        if divided_counts is None:
            return None
        random = np.random.default_rng(0)
        for start in range(_STARTS):
            # Round running sums: any run of consecutive pairs is then off by at most one circuit, and loads by little.
            offset = 0.5 if start == 0 else random.random()
            order = np.arange(len(max_counts)) if start < 2 else random.permutation(len(max_counts))
            whole_counts = np.zeros(len(max_counts))
            whole_counts[order] = np.diff(
                np.floor(np.cumsum(divided_counts[order]) + offset + _TOLERANCE), prepend=0.0
            )
            moved = self._repair(load, np.clip(whole_counts, 0, max_counts), max_counts, random)
            if moved is not None:
                circuits[self._second] = moved
                circuits[self._first[self._both]] = max_counts - moved
                return circuits
        return None

    def _divide(self, load: Floats, max_counts: Floats) -> Floats | None:
        """Return the fractional circuits of each pair that go the longer way, or None if no division fits."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array, hstack

        pairs, loads = len(max_counts), len(load)
        differ = _make_difference_matrix(loads)
        changes = hstack([differ @ self._moves, -differ, csr_array((loads, 1))], format="csr")
        spare = hstack(
            [csr_array((loads, pairs)), _make_identity(loads), csr_array(-np.ones((loads, 1)))], format="csr"
        )
        solution = milp(
            np.eye(1, pairs + loads + 1, pairs + loads)[0],
            constraints=[
                LinearConstraint(changes, -(differ @ load), -(differ @ load)),
                LinearConstraint(spare, -np.inf, self._programme.half),
            ],
            bounds=Bounds(0, np.concatenate([max_counts, np.full(loads + 1, np.inf)])),
        )
        if solution.x is None or solution.x[-1] > 1e-5:
            return None
        divided: Floats = np.clip(solution.x[:pairs], 0, max_counts)
        return divided

    def _repair(
        self, load: Floats, moved: Floats, max_counts: Floats, random: np.random.Generator
    ) -> Floats | None:
        """Change the direction of single circuits until no segment is too full.

        Return the circuits that go the longer way, or None if a segment stays too full.
        """
        half, moved = self._programme.half, moved.copy()
        load = load + self._moves @ moved
        free_at = np.zeros(len(max_counts), int)
        for step in range(_MAX_MOVES):
            worst_segment = int(load.argmax())
            if load[worst_segment] <= half + _TOLERANCE:
                return moved
            start, end = self._by_segment.indptr[worst_segment : worst_segment + 2]
            pairs, signs = self._by_segment.indices[start:end], -np.sign(self._by_segment.data[start:end])
            possible = np.where(signs > 0, moved[pairs] < max_counts[pairs], moved[pairs] > 0)
            possible &= (signs != 0) & (free_at[pairs] <= step)
            pairs, signs = pairs[possible], signs[possible]
            if not len(pairs):
                return None
            if len(pairs) > _MAX_CANDIDATES:
                sample = random.choice(len(pairs), _MAX_CANDIDATES, replace=False)
                pairs, signs = pairs[sample], signs[sample]
            load_after = load[:, None] + self._moves[:, pairs].toarray() * signs
            excess = np.square(np.maximum(load_after - half, 0)).sum(axis=0)
            near_excess = np.square(np.maximum(load_after - half + 1, 0)).sum(axis=0)
            best_index = int((excess + 0.01 * near_excess + 1e-3 * random.random(len(pairs))).argmin())
            load = load_after[:, best_index]
            moved[pairs[best_index]] += signs[best_index]
            # A pair that moved is locked for a few steps, which prevents cycles.
            free_at[pairs[best_index]] = step + 2 + int(random.integers(0, 5))
        return None


def _make_identity(size: int) -> Any:
    from scipy.sparse import eye_array

    return eye_array(size, format="csr")


def _fill(programme: _Programme, circuits: Floats) -> Floats:
    """Return `circuits` plus one circuit after another for the pair of least share that has an arc with room."""
    circuits = circuits.copy()
    room = programme.half - programme.crosses @ circuits
    crosses = programme.crosses
    pair_circuits = programme.serves @ circuits
    lengths = np.asarray(crosses.sum(axis=0))
    heap = [
        (pair_circuits[pair] / demand, lengths[programme.columns[pair][0]], pair)
        for pair, demand in enumerate(programme.demands)
    ]
    heapify(heap)
    while heap:
        _, length, pair = heap[0]
        for column in programme.columns[pair]:
            part = slice(crosses.indptr[column], crosses.indptr[column + 1])
            segments, segment_loads = crosses.indices[part], crosses.data[part]
            if (room[segments] >= segment_loads - _TOLERANCE).all():
                circuits[column] += 1
                room[segments] -= segment_loads
                pair_circuits[pair] += 1
                heapreplace(heap, (pair_circuits[pair] / programme.demands[pair], length, pair))
                break
        else:
            heappop(heap)
    return circuits


def _to_wavelengths(programme: _Programme, column_circuits: Floats) -> Wavelengths:
    circuits = np.zeros((2, programme.nodes, programme.nodes))
    for count, entries in zip(column_circuits, programme.places, strict=True):
        for entry in entries:
            circuits[entry] += count
    return Wavelengths(circuits, programme.share_of(column_circuits))
