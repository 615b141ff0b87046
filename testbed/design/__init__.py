"""The plan of a lab: topologies, wirings, routes, plans, and what they ought to reach. Pure; no lab is touched.

| room | what lives there | imports of these |
|---|---|---|
| `model` | nodes, NICs, links, topologies, routes; rates that are believed | |
| `matching` | heaviest matchings | |
| `topology` | strides, rings, demands, and topologies found for them | `matching` |
| `routing` | next hops, paths, balance over several | `topology` |
| `patching` | colouring, planes, patch lists | `topology` |
| `collectives` | the list of collectives; trees and hierarchies; what a wiring should reach | `routing` |
| `workloads` | models, sharding, strategies, one iteration | `topology` |
| `fabrics` | the list of fabrics | `topology` |
| `search` | strategy and topology found together | `workloads`, `fabrics` |
| `plans` | plan files | `search` |
| `evaluation` | jobs simulated, fabrics compared | `plans` |
| `repair` | what to do when a fibre is lost | `topology` |
| `sharing` | several jobs joined on one lab, or the next one patched ahead | `evaluation` |
| `reproductions` | figures of papers | all |
"""
