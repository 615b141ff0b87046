"""Rows of a trace, written while the loop runs: flows that ended, links whose rate changed."""

from __future__ import annotations

import numpy as np

from lightbed.compiled import compiled
from sim.models.network.engine.program import FLOW_ROWS, FLOWS, RATE_ROWS, Program, Routes, State


@compiled
def trace_is_full(state: State) -> bool:
    """Return True if the next events might not fit."""
    flows_fit = state.number[FLOW_ROWS] + state.number[FLOWS] <= state.flow_rows.shape[0]
    rates_fit = state.number[RATE_ROWS] + state.link_rate.size <= state.rate_rows.shape[0]
    return not (flows_fit and rates_fit)


@compiled
def note_flows(program: Program, state: State, before: int) -> None:
    """Trace the flows that have just ended: they stand behind those that move."""
    if state.flow_rows.shape[0] == 0:
        return
    for place in range(state.number[FLOWS], before):
        message = state.flows[place]
        row = state.flow_rows[state.number[FLOW_ROWS]]
        row[0] = message
        row[1] = state.chain_round[program.group_chain[program.message_group[message]]]
        row[2] = state.flow_begin_s[message]
        row[3] = state.clock[0]
        state.number[FLOW_ROWS] += 1


@compiled
def note_rates(routes: Routes, state: State) -> None:
    """Trace the links whose rate is another than before."""
    rate = np.zeros(state.link_rate.size)
    for place in range(state.number[FLOWS]):
        message = state.flows[place]
        for entry in range(routes.first[message], routes.first[message + 1]):
            rate[routes.links[entry]] += state.flow_rate[message]
    for link in range(rate.size):
        if rate[link] != state.link_rate[link]:
            state.link_rate[link] = rate[link]
            row = state.rate_rows[state.number[RATE_ROWS]]
            row[0], row[1], row[2] = state.clock[0], link, rate[link]
            state.number[RATE_ROWS] += 1
