"""Cassini (NSDI 2024): start times for jobs that share links, so that their bursts do not collide.

| module | contents |
|---|---|
| `circle` | demands of a link's jobs around one circle of integer ticks, the least common multiple of their periods |
| `rotation` | the best shifts on one link: exact for two jobs, branch and bound for more |
| `prediction` | iteration times alone, shared fairly, shifted, and under a policy on hosts |
| `schedule` | scores of candidate placements, and the schedule of the best one |
"""
