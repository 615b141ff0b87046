"""Periodic jobs that share links: how long their iterations take, by who gets how much of a link.

| module | what it holds |
|---|---|
| `job` | a job as bursts within a period, and the rule by which links are shared |
| `engine` | the event loop, compiled where numba is installed |
| `simulation` | jobs simulated: iteration times, alignments, rates in time; sweeps over arrays of them |
| `mltcp` | the recurrence by which MLTCP moves two jobs apart |

Times are ms and rates Gb/s, so that a volume is Mbit.
"""
