"""Cassini (NSDI 2024): start times for jobs that share links, so that their bursts do not collide.

| module | contents |
|---|---|
| `circle` | jobs of a link as demands around one circle, on integer ticks of the least common multiple |
| `rotation` | the best shifts on one link: exact for two jobs, branch and bound for more |
| `prediction` | iteration times alone, shared fairly, and shifted; and under a policy on hosts |
| `schedule` | scores of candidate placements, and the schedule of the best one by the graph of its jobs and links |
"""
