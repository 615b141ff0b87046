"""Traffic to the experts of a mixture, as its gates route it: even, or skewed in each layer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from testbed.errors import WorkloadError

Floats = NDArray[np.float64]


def draw_expert_traffic(
    tokens: float,
    expert_count: int,
    experts_per_token: int,
    member_count: int,
    *,
    skew: float = 0.0,
    layer: int = 0,
    seed: int = 0,
    by_member: bool = False,
    token_bytes: float = 1.0,
) -> Floats:
    """Return the traffic between the members of an expert-parallel group in one layer, shape (members, members).

    Each member holds `tokens` tokens and sends each token to `experts_per_token` different experts. The diagonal holds
    the tokens that stay on their member. Experts are spread over the members in equal or almost equal blocks. The
    result counts tokens, or bytes if `token_bytes` is given. Each row sums to `tokens * experts_per_token *
    token_bytes`. The way back is the transposed matrix.

    `skew` determines the shares of the experts: 0 is even, otherwise the k-th most popular expert has the weight
    `k ** -skew` (Zipf). The popular experts depend on `layer` and `seed`, and with `by_member` also on the member, as
    if each member had its own kind of data. No expert gets a token twice.

    Raise `WorkloadError` if a number is not positive, if `experts_per_token` or `member_count` is more than
    `expert_count`, and for a negative skew.

    For example, two members have two experts each, and each token goes to two of the four experts. Half of the copies
    stay:

    >>> draw_expert_traffic(10, expert_count=4, experts_per_token=2, member_count=2).tolist()
    [[10.0, 10.0], [10.0, 10.0]]
    """
    if not 1 <= experts_per_token <= expert_count or not 1 <= member_count <= expert_count:
        raise WorkloadError(
            f"each token goes to {experts_per_token} of {expert_count} experts on {member_count} members: "
            f"both numbers must be 1 to {expert_count}"
        )
    if not (tokens > 0 and token_bytes > 0 and skew >= 0 and np.isfinite(skew)):
        raise WorkloadError(
            f"{tokens} tokens of {token_bytes} bytes, skew {skew}: give numbers above 0, and a skew of 0 or more"
        )
    member_by_expert = np.arange(expert_count) * member_count // expert_count
    rows = [
        np.bincount(
            member_by_expert,
            weights=compute_expert_shares(
                expert_count, experts_per_token, skew, layer=layer, seed=seed, member=member * by_member
            ),
            minlength=member_count,
        )
        for member in range(member_count)
    ]
    return np.array(rows, dtype=np.float64) * (tokens * token_bytes)


def compute_expert_shares(
    expert_count: int, experts_per_token: int, skew: float, *, layer: int = 0, seed: int = 0, member: int = 0
) -> Floats:
    """Return the fractions, at most 1, of a member's tokens that the experts get; they sum to `experts_per_token`."""
    weights = np.arange(1, expert_count + 1, dtype=np.float64) ** -skew
    shares = np.zeros(expert_count)
    saturated_count = 0
    while True:  # an expert gets at most all tokens: its excess goes to less popular experts
        shares[:saturated_count] = 1.0
        shares[saturated_count:] = (
            weights[saturated_count:]
            * (experts_per_token - saturated_count)
            / weights[saturated_count:].sum()
            if saturated_count < expert_count
            else 0.0
        )
        excess_count = int(np.count_nonzero(shares > 1 + 1e-12))
        if not excess_count:
            break
        saturated_count += excess_count
    return np.random.default_rng((seed, layer, member)).permutation(shares)
