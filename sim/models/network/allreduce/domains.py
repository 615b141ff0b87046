"""AllReduce over domains of high bandwidth: inside each domain first, then rail by rail, then inside again.

The x members in a domain scatter and reduce, so that each holds 1/x of the domain's sum. The y members of equal rank,
one per domain, sum their parts on a ring over their rail. Each domain then gathers. A member sends 2(x-1)/x of the
tensor inside its domain and 2(y-1)/(xy) over its rail; a ring over all members would send 2(xy-1)/(xy) over rails.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.models.network.allreduce.algorithms import Algorithm, Chain, Integers, Phase, plan_rings


def reduce_over_domains(domain_size: int, rail_algorithm: Algorithm = plan_rings) -> Algorithm:
    """Return the hierarchical AllReduce for domains of `domain_size` consecutive nodes.

    A group with the same ranks in each of its domains is summed as the module describes; its members of equal rank
    use the rings that `rail_algorithm` returns for their domains. Any other group forms one ring in ascending order,
    which leaves each domain only once.

    >>> (chain,) = reduce_over_domains(4)(range(8), 8000)
    >>> [(phase.round_count, phase.sizes_bytes[0].item()) for phase in chain]
    [(3, 2000), (2, 1000), (3, 2000)]
    """

    def allreduce(members: Sequence[int], size_bytes: int) -> tuple[Chain, ...]:
        ordered_members = np.sort(np.array(members, dtype=np.int64))
        domains, first_indices = np.unique(ordered_members // domain_size, return_index=True)
        domain_count, nodes_per_domain = domains.size, ordered_members.size // max(domains.size, 1)
        rows = (
            ordered_members.reshape(domain_count, nodes_per_domain)
            if domain_count * nodes_per_domain == ordered_members.size
            else None
        )
        is_regular = (
            rows is not None
            and bool((first_indices == np.arange(domain_count) * nodes_per_domain).all())
            and bool((rows % domain_size == rows[:1] % domain_size).all())
        )
        if not is_regular or domain_count == 1 or rows is None or not size_bytes:
            return plan_rings(ordered_members.tolist(), size_bytes)
        part_bytes = -(-size_bytes // nodes_per_domain)
        ring_phases = [phase for (phase,) in rail_algorithm(domains.tolist(), part_bytes)]
        row_by_domain = np.zeros(domains[-1] + 1, np.int64)
        row_by_domain[domains] = np.arange(domain_count)
        # The rings of a group have equally many rounds, so together they are one phase.
        rail_phase = Phase(
            np.concatenate([rows[row_by_domain[ring_phase.sources]].T.ravel() for ring_phase in ring_phases]),
            np.concatenate([rows[row_by_domain[ring_phase.targets]].T.ravel() for ring_phase in ring_phases]),
            np.concatenate([np.tile(ring_phase.sizes_bytes, nodes_per_domain) for ring_phase in ring_phases]),
            round_count=2 * (domain_count - 1),
        )
        if nodes_per_domain == 1:
            return ((rail_phase,),)
        spread_phase = _rotate(rows, part_bytes, nodes_per_domain - 1)
        return ((spread_phase, rail_phase, spread_phase),)

    return allreduce


def _rotate(rows: Integers, size_bytes: int, round_count: int) -> Phase:
    """Return rounds in which each node sends `size_bytes` to the next one in its row, and the last to the first."""
    return Phase(rows.ravel(), np.roll(rows, -1, axis=1).ravel(), np.full(rows.size, size_bytes), round_count)
