"""Routings by name: which of its paths a message takes.

| routing | Fat-trees | direct connect and expander |
|---|---|---|
| `ideal` | links above the edge are never full | the paths of the design, which load links evenly |
| `spread` | over all up-links alike, packet by packet | in four parts over shortest paths |
| `hash` | a path for each message by a hash, packets in queues | the same, of the shortest paths |

Without the option Fat-trees spread, and direct connect takes the paths of the design.
"""

from __future__ import annotations

IDEAL, SPREAD, HASH = ROUTINGS = ("ideal", "spread", "hash")
