"""Strategies polished by descents and annealing, on every number of links for pairs.

On links for pairs other strategies are fast than on rings, and which is better shows at the end alone. So whole groups
of operators are laid out first, which takes little and hardly depends on chance. From the fastest of these strategies
descents begin for each number of links, and the best of each is annealed and cut into many microbatches. Of the best
of all, links and strategy then take turns: a descent moves operators, and links join those that sent most before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from testbed.design.search.annealing import Annealer, Candidate, Cooling, Timed, seconds_of
from testbed.design.search.chains.stop import Stop

_FEW, _MANY = 2, 8
"""Microbatches of the descents: with few simulations are quick, and shapes much the same; many are for pipelines."""
_DESCENT = 0.1
"""Part of the budget for each of the first descents, at most."""
_RIVALS = 2
"""Numbers of links for pairs whose best is annealed, and tried with many microbatches."""
_RUN = 0.12
"""Part of the budget for each run with the descent after it, at most."""
_GAIN = 3e-3
"""Part by which an iteration gets shorter at least for another turn of links and strategy."""
_LINKS, _LAST = 0.25, 0.04
"""Parts of the budget for the last search of links and for the last run, at most."""
_REST = 0.4
"""Part of the budget that is left for all that follows the first descents."""


def polish(
    annealer: Annealer, starts: Sequence[Candidate], chance: np.random.Generator, budget: int, stop: Stop
) -> tuple[Timed, ...]:
    """Return what descents and annealing make of some strategies, the fastest first; ends with the `budget`.

    A `stop` ends it with what was found until then.
    """
    found: list[Timed] = []
    end, part = annealer.work + budget, int(budget * _RUN)
    with stop:
        for one in _on_each_number_of_links(annealer, starts, chance, int(budget * _DESCENT)):
            found.append(one)
            if annealer.work > end - budget * _REST:
                break
        for rival in _best_by_links(found)[:_RIVALS]:
            found.extend(_annealed(annealer, rival, chance, part))
        found.append(annealer.recount(min(found, key=seconds_of), end))
        found.append(_in_turns(annealer, min(found, key=seconds_of), chance, part, end))
        few, rest = annealer.nearest_count(_FEW), min(end - annealer.work, int(budget * _LINKS))
        found.append(annealer.rewire(min(found, key=seconds_of), few, chance, rest))
        best, rest = min(found, key=seconds_of).candidate, min(end - annealer.work, int(budget * _LAST))
        found.append(annealer.run(best, chance, rest, Cooling(), (best.microbatches,)))
    return tuple(sorted(found, key=seconds_of))


def _on_each_number_of_links(
    annealer: Annealer, starts: Sequence[Candidate], chance: np.random.Generator, part: int
) -> Iterator[Timed]:
    """Yield where descents end, from the strategies and on every number of links for pairs."""
    few, coarse = annealer.nearest_count(_FEW), list[Timed]()
    for start in _on_other_links(annealer, starts):
        yield Timed(annealer.seconds(start), start)
        near = start._replace(microbatches=few)
        rough = annealer.descend(near, chance, part, annealer.moves.largest)
        coarse.append(_coarse_turns(annealer, rough, chance, part))
        yield coarse[-1]
    for degree in dict.fromkeys(one.candidate.finding.matching_degree for one in coarse):
        bases = _bases(annealer, coarse, degree)
        ends = [annealer.descend(base, chance, part) for base in bases]
        yield from ends
        other = annealer.on_faster_links(min(ends, key=seconds_of))
        yield other
        yield annealer.descend(other.candidate, chance, part)


def _bases(annealer: Annealer, coarse: Sequence[Timed], degree: int) -> Iterable[Candidate]:
    """Return the fastest with so many links for pairs, and the fastest with another number, on so many made for it."""
    fastest = {
        one.candidate.finding.matching_degree == degree: one
        for one in sorted(coarse, reverse=True, key=seconds_of)
    }
    own = fastest[True].candidate
    others = [annealer.relinked(fastest[False].candidate, degree)] if False in fastest else []
    return dict.fromkeys([own, *others])


def _coarse_turns(annealer: Annealer, best: Timed, chance: np.random.Generator, part: int) -> Timed:
    """Return where largest groups go, on links made for what was sent before, as long as this brings something."""
    while best.candidate.finding.matching_degree:
        linked = annealer.gather(annealer.on_faster_links(best))
        better = annealer.descend(linked.candidate, chance, part, annealer.moves.largest)
        if better.seconds >= best.seconds * (1 - _GAIN):
            return min(best, better, key=seconds_of)
        best = better
    return best


def _on_other_links(annealer: Annealer, starts: Sequence[Candidate]) -> Iterable[Candidate]:
    """Return the strategies on their links, and the first with every other number of them for pairs."""
    first, *others = starts
    rewired = [annealer.relinked(first, degree) for degree in annealer.problem.matching_degrees]
    return dict.fromkeys([first, *rewired, *others])


def _annealed(
    annealer: Annealer, rival: Timed, chance: np.random.Generator, part: int
) -> tuple[Timed, Timed]:
    """Return what a run and descents make of it, with as many microbatches, and with many."""
    counts = (rival.candidate.microbatches,)
    best = annealer.run(rival.candidate, chance, part // 4, Cooling(), counts)
    few = annealer.on_faster_links(annealer.descend(best.candidate, chance, part // 2))
    many = few.candidate._replace(microbatches=annealer.nearest_count(_MANY))
    pipelined = annealer.gather(Timed(annealer.seconds(many), many))
    return few, annealer.descend(pipelined.candidate, chance, part)


def _in_turns(annealer: Annealer, best: Timed, chance: np.random.Generator, part: int, end: int) -> Timed:
    """Return where neither other links nor another strategy brings more, or where work comes to its `end`."""
    while annealer.work < end:
        linked = annealer.on_faster_links(annealer.gather(best))
        better = annealer.descend(linked.candidate, chance, min(part, end - annealer.work))
        if better.seconds >= best.seconds * (1 - _GAIN):
            return min(best, better, key=seconds_of)
        best = better
    return best


def _best_by_links(found: Sequence[Timed]) -> list[Timed]:
    """Return the fastest with each number of links for pairs, the fastest of all first."""
    fastest: dict[int, Timed] = {}
    for one in sorted(found, key=seconds_of):
        fastest.setdefault(one.candidate.finding.matching_degree, one)
    return list(fastest.values())
