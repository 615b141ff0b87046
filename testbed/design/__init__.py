"""Planning of a lab: topologies, wirings, routes, plans, and their predicted performance. Nothing here touches a lab.

| package or module | contents | imports |
|---|---|---|
| `model` | nodes, NICs, links, topologies, routes; the range of link rates | |
| `matching` | matchings of maximum weight | |
| `topology` | strides, rings, demands, and the topologies for them | `matching` |
| `routing` | next hops, paths, pairs split over several paths | `topology` |
| `patching` | colouring, planes, patch lists | `topology` |
| `collectives` | the list of collectives; trees; the expected performance of a wiring | `routing` |
| `workloads` | models, sharding, strategies, one iteration | `topology` |
| `fabrics` | the list of fabrics | `topology` |
| `search` | joint search for strategy and topology | `workloads`, `fabrics` |
| `plans` | plan files | `search` |
| `evaluation` | simulation of jobs, comparison of fabrics | `plans` |
| `repair` | plans for the loss of fibres | `topology` |
| `sharing` | jobs that share a lab; circuits set up ahead for the next job | `evaluation` |
| `reproductions` | figures of papers | all |
"""
