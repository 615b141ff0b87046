"""Periodic jobs that share links: their iteration times under a rule of sharing.

| module | contents |
|---|---|
| `job` | a job as bursts within a period, and the rule of sharing |
| `engine` | the event loop, compiled if numba is installed |
| `simulation` | simulation of jobs: iteration times, alignments, rates over time; sweeps over arrays of parameters |
| `mltcp` | the recurrence with which MLTCP moves two jobs apart |

Times are in ms and rates in Gb/s, so volumes are in Mbit.
"""
