"""Cassini (NSDI 2024): when jobs that share links should start, so that their bursts do not meet.

| module | what it holds |
|---|---|
| `circle` | jobs of a link as demands around one circle, on integer ticks of the least common multiple |
| `rotation` | the best shifts on one link: exact for two jobs, branch and bound for more |
| `prediction` | iteration times alone, shared fairly, and shifted; and under a policy on hosts |
| `schedule` | candidate placements scored, the best one scheduled by the graph of its jobs and links |
"""
