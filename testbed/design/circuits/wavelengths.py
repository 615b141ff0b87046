"""Wavelengths on a bidirectional ring (SiP-Ring): maximises the least share that any pair gets of its demand.

Each direction has half of the wavelengths. A wavelength is used again on arcs that share no segment, so the constraint
is the number of circuits over each segment. The linear programme bounds every allocation; `allocate` rounds its
solution, `allocate_exactly` solves for integers, which is feasible on small rings only. Symmetric demands get symmetric
circuits: each one clockwise from s to d has one counterclockwise from d to s. Needs scipy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Wavelengths:
    """Circuits of an allocation, (2, n, n): clockwise and counterclockwise, from row to column.

    `share` is the least number of circuits per unit of demand.
    """

    circuits: Floats
    share: float


@dataclass(frozen=True, slots=True)
class _Programme:
    """Linear programme with one column per arc: the demands that it serves, and the segments that it crosses.

    `places` are the entries of `circuits` that each column stands for.
    """

    serves: csr_array
    crosses: csr_array
    demands: Floats
    half: int
    places: tuple[tuple[tuple[int, int, int], ...], ...]
    nodes: int


def solve_bound(demands: Floats, waves: int, max_distance: int | None = None) -> Wavelengths:
    """Return the solution of the linear programme, an upper bound on every allocation in whole circuits."""
    programme = _make_programme(demands, waves, max_distance)
    return _to_wavelengths(programme, _solve(programme, integral=False))


def allocate_exactly(demands: Floats, waves: int, max_distance: int | None = None) -> Wavelengths:
    """Return the optimal allocation in whole circuits; the time grows fast beyond 16 nodes."""
    programme = _make_programme(demands, waves, max_distance)
    return _to_wavelengths(programme, np.round(_solve(programme, integral=True)))


def allocate(demands: Floats, waves: int, max_distance: int | None = None) -> Wavelengths:
    """Return whole circuits: the rounded-down bound, then more for pairs of least share while segments have room."""
    programme = _make_programme(demands, waves, max_distance)
    chosen = np.floor(_solve(programme, integral=False) + 1e-6)
    # Add circuits, one at a time, to the pair with the least share that has an arc with room.
    room = programme.half - programme.crosses @ chosen
    by_arc = programme.crosses.tocsc()
    has = programme.serves @ chosen
    share = has / programme.demands
    while np.isfinite(share).any():
        pair = int(np.argmin(share))
        arcs = programme.serves.indices[programme.serves.indptr[pair] : programme.serves.indptr[pair + 1]]
        crossed = [by_arc.indices[by_arc.indptr[arc] : by_arc.indptr[arc + 1]] for arc in arcs]
        open_arcs = [place for place, links in enumerate(crossed) if (room[links] >= 1 - 1e-6).all()]
        if not open_arcs:
            share[pair] = np.inf
            continue
        place = min(open_arcs, key=lambda candidate: len(crossed[candidate]))
        chosen[arcs[place]] += 1
        room[crossed[place]] -= 1
        has[pair] += 1
        share[pair] = has[pair] / programme.demands[pair]
    return _to_wavelengths(programme, chosen)


def _make_programme(demands: Floats, waves: int, max_distance: int | None) -> _Programme:
    nodes = len(demands)
    if demands.shape != (nodes, nodes) or (demands < 0).any() or np.diag(demands).any():
        raise ValueError("demands must be a square matrix of numbers of 0 or more, with 0 on the diagonal")
    if waves < 2 or waves % 2:
        raise ValueError(f"{waves} wavelengths: the number must be even, half for each direction")
    longest = nodes - 1 if max_distance is None else max_distance
    # A symmetric pair is one unknown of the programme, so that its circuits are symmetric, too.
    symmetric = bool((demands == demands.T).all())
    nodes = len(demands)
    arcs = [
        (turn, int(source), int(target))
        for source, target in np.argwhere(demands > 0)
        for turn, length in enumerate(((target - source) % nodes, (source - target) % nodes))
        if length <= longest and not (symmetric and turn)
    ]
    return _assemble(demands, waves // 2, arcs, symmetric=symmetric)


def _assemble(demands: Floats, half: int, arcs: list[tuple[int, int, int]], *, symmetric: bool) -> _Programme:
    from scipy.sparse import csr_array

    nodes = len(demands)
    number: dict[tuple[int, int], int] = {}
    amounts: list[float] = []
    for source, target in np.argwhere(demands > 0).tolist():
        key = _pair(source, target, symmetric)
        if key not in number:
            number[key] = len(amounts)
            amounts.append(float(demands[source, target]))
    rows = [number[_pair(source, target, symmetric)] for _, source, target in arcs]
    missing = set(range(len(amounts))) - set(rows)
    if missing:
        raise ValueError(
            f"{len(missing)} pairs are further apart than the longest arc: allow longer arcs or place them closer"
        )
    segments = [_segments(arc, nodes) for arc in arcs]
    columns = np.repeat(np.arange(len(arcs)), [len(listed) for listed in segments])
    crossed = np.concatenate(segments) if segments else np.zeros(0, np.int64)
    return _Programme(
        csr_array((np.ones(len(arcs)), (rows, np.arange(len(arcs)))), shape=(len(amounts), len(arcs))),
        csr_array((np.ones(crossed.size), (crossed, columns)), shape=(2 * nodes, len(arcs))),
        np.array(amounts),
        half,
        tuple(
            ((turn, source, target), (1 - turn, target, source)) if symmetric else ((turn, source, target),)
            for turn, source, target in arcs
        ),
        nodes,
    )


def _pair(source: int, target: int, symmetric: bool) -> tuple[int, int]:
    return (min(source, target), max(source, target)) if symmetric else (source, target)


def _segments(arc: tuple[int, int, int], nodes: int) -> Integers:
    """Return the segments of an arc: i from node i to the next one, nodes + i the same counterclockwise."""
    turn, source, target = arc
    first, last = (target, source) if turn else (source, target)
    return turn * nodes + (first + np.arange((last - first) % nodes)) % nodes


def _solve(programme: _Programme, *, integral: bool) -> Floats:
    """Return the circuits of each arc that maximise the least share. Raises `RuntimeError` if the solver fails."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, hstack

    arcs = programme.crosses.shape[1]
    if not arcs:
        return np.zeros(0)
    goal = -np.eye(1, arcs + 1, arcs)[0]
    served = hstack([programme.serves, csr_array(-programme.demands[:, None])], format="csr")
    room = hstack([programme.crosses, csr_array((programme.crosses.shape[0], 1))], format="csr")
    solution = milp(
        goal,
        constraints=[LinearConstraint(served, 0, np.inf), LinearConstraint(room, -np.inf, programme.half)],
        integrality=np.append(np.full(arcs, int(integral)), 0),
        bounds=Bounds(0, np.inf),
    )
    if solution.x is None:
        raise RuntimeError(f"no wavelengths were found; the solver reports: {solution.message}")
    return np.asarray(solution.x[:arcs])


def _to_wavelengths(programme: _Programme, chosen: Floats) -> Wavelengths:
    circuits = np.zeros((2, programme.nodes, programme.nodes))
    for count, places in zip(chosen, programme.places, strict=True):
        for place in places:
            circuits[place] += count
    shares = (programme.serves @ chosen) / programme.demands
    return Wavelengths(circuits, float(shares.min(initial=np.inf)) if shares.size else 0.0)
