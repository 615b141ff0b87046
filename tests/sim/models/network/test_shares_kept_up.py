"""Rates worked out only where a change reaches, against all rates worked out again at every change."""

from collections import Counter

import numpy as np
import pytest
from libraries import library

from sim.models.network.engine.program import (
    DIRTY,
    FLOWS,
    FREE,
    Routes,
    make_neighbours,
    make_state,
)
from sim.models.network.execution.flows import _make_program_without_tasks

shares = library("sim.models.network.engine.shares")  # in machine code
shares_numpy = library("sim.models.network.engine.shares_numpy")


class Crossing:
    """Messages on random paths, several on some; some move."""

    def __init__(self, random, links, messages, paths):
        routes = [
            random.choice(links, random.integers(1, min(links, 5)), replace=False) for _ in range(paths)
        ]
        first = np.concatenate([[0], np.cumsum([route.size for route in routes])])
        path = np.arange(messages) if paths == messages else random.integers(paths, size=messages)
        self.neighbours = make_neighbours(
            Routes(first, np.concatenate(routes), path), np.zeros(links, dtype=bool)
        )
        self.state = make_state(_make_program_without_tasks(messages), links)
        self.capacity = random.choice([0.3, 1.0, 1.0, 2.5, 7.0], links)
        self.waiting = list(range(messages))
        self.fresh = set()

    def find_moving_messages(self):
        return self.state.flow_messages[: self.state.counters[FLOWS]]

    def ending(self):
        """Return what may end: a flow that has only just begun has no rate as yet."""
        return np.setdiff1d(self.find_moving_messages(), list(self.fresh))

    def begin(self, message):
        state, place = self.state, self.state.counters[FLOWS]
        self.waiting.remove(message)
        self.fresh.add(message)
        state.flow_messages[place], state.flow_position[message], state.flow_rate[message] = (
            message,
            place,
            0.0,
        )
        state.counters[FLOWS] += 1
        shares.add_flows(state, self.neighbours, place)

    def end(self, message):
        """Behind those that move, as the loop does it."""
        state = self.state
        state.counters[FLOWS] -= 1
        place, last = int(np.flatnonzero(state.flow_messages == message)[0]), state.counters[FLOWS]
        state.flow_messages[place], state.flow_messages[last] = state.flow_messages[last], message
        state.flow_position[state.flow_messages[place]] = place
        shares.remove_flows(state, self.neighbours, last + 1)
        self.waiting.append(message)

    def change_capacities(self, random):
        """Look at all links again, as when a run goes on after a pause."""
        self.capacity[random.integers(self.capacity.size)] = random.choice([0.0, 0.5, 3.0])
        self.state.dirty_links[:] = np.arange(self.capacity.size)
        self.state.dirty_mark[:] = 1
        self.state.counters[DIRTY] = self.capacity.size


@pytest.mark.slow
def test_rates_kept_up_are_those_worked_out_anew():
    """Flows come and go in turn and at once, a message that has ended begins again, links die and live again."""
    random, seen = np.random.default_rng(17), Counter()
    sizes = [(3, 8, 8), (12, 30, 30), (40, 60, 60), (30, 200, 200), (12, 30, 7), (40, 200, 60)]
    for links, messages, paths in sizes * 4:
        crossing = Crossing(random, links, messages, paths)
        for _ in range(80):
            for _ in range(random.integers(1, 4)):
                ending = crossing.ending()
                if crossing.waiting and random.random() < 0.55:
                    crossing.begin(int(random.choice(crossing.waiting)))
                elif ending.size:
                    ended = int(random.choice(ending))
                    crossing.end(ended)
                    if random.random() < 0.2:
                        crossing.begin(ended)
            if random.random() < 0.05:
                crossing.change_capacities(random)
            shares.set_fair_rates(crossing.state, crossing.neighbours, crossing.capacity)
            crossing.fresh.clear()
            moving = crossing.find_moving_messages()
            used = crossing.neighbours.path_of_message[moving]
            again = shares_numpy.compute_fair_rates(
                used, crossing.neighbours.first_link, crossing.neighbours.links, crossing.capacity
            )
            assert crossing.state.flow_rate[moving] == pytest.approx(again, rel=1e-8, abs=1e-12)
            seen["some rates kept"] += 0 < crossing.neighbours.counters[FREE] < np.unique(used).size
            seen["several flows on a path"] += np.unique(used).size < used.size
            seen["dead link"] += bool((again == 0).any())
    assert seen["some rates kept"] > 600, seen
    assert seen["dead link"] > 40, seen
    assert seen["several flows on a path"] > 300, seen
