"""Traffic that the gates of a mixture of experts send: even, or skewed by layer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from testbed.errors import WorkloadError

Floats = NDArray[np.float64]


def expert_traffic(
    tokens: float,
    experts: int,
    routed: int,
    members: int,
    *,
    skew: float = 0.0,
    layer: int = 0,
    seed: int = 0,
    by_member: bool = False,
    token_bytes: float = 1.0,
) -> Floats:
    """Return what the members of an expert-parallel group send to each other in one layer, shape (members, members).

    Each member holds `tokens` tokens and sends each to `routed` different experts; the diagonal is what stays. Experts
    are on the members in equal or almost equal blocks. The result counts tokens, or bytes with `token_bytes` per token.
    The rows add up to `tokens * routed * token_bytes`; the transposed matrix is the way back.

    Experts get shares of the tokens by `skew`: 0 is even, and the k-th most popular expert weighs `k ** -skew` (Zipf).
    Which expert is popular differs from layer to layer, by `seed`, and with `by_member` also from member to member, as
    if each had data of its own kind. No expert gets a token twice.

    Raise `WorkloadError` if a number is not positive, if `routed` or `members` is more than `experts`, and for a
    negative skew.

    Two members with two experts each, two of four experts per token: half of the copies stay.

    >>> expert_traffic(10, experts=4, routed=2, members=2).tolist()
    [[10.0, 10.0], [10.0, 10.0]]
    """
    if not 1 <= routed <= experts or not 1 <= members <= experts:
        raise WorkloadError(
            f"{routed} of {experts} experts on {members} members: give at least 1 and at most as many as experts"
        )
    if not (tokens > 0 and token_bytes > 0 and skew >= 0 and np.isfinite(skew)):
        raise WorkloadError(f"{tokens} tokens of {token_bytes} bytes, skew {skew}: give positive numbers")
    placement = np.arange(experts) * members // experts
    rows = [
        np.bincount(
            placement,
            weights=expert_shares(experts, routed, skew, layer=layer, seed=seed, member=member * by_member),
            minlength=members,
        )
        for member in range(members)
    ]
    return np.array(rows, dtype=np.float64) * (tokens * token_bytes)


def expert_shares(
    experts: int, routed: int, skew: float, *, layer: int = 0, seed: int = 0, member: int = 0
) -> Floats:
    """Return the fraction of a member's tokens that each expert of a layer gets: at most 1 each, `routed` in total."""
    weights = np.arange(1, experts + 1, dtype=np.float64) ** -skew
    shares = np.zeros(experts)
    full = 0
    while True:  # what an expert cannot take goes to the less popular ones
        shares[:full] = 1.0
        shares[full:] = weights[full:] * (routed - full) / weights[full:].sum() if full < experts else 0.0
        excess = int(np.count_nonzero(shares > 1 + 1e-12))
        if not excess:
            break
        full += excess
    return np.random.default_rng((seed, layer, member)).permutation(shares)
