"""Operation of a lab: plan, journal, apply, verify.

| modules | content |
|---|---|
| `intent`, `design`, `choice`, `confirmation` | stored topologies, choice of a design, confirmation |
| `plan`, `planned_change`, `change_file`, `durations` | the steps of a plan, what they touch, how long they take |
| `engine`, `journal`, `apply`, `session` | states of a step, its record, execution of a plan, an open lab |
| `direct` | changes of a switch that is named by its address alone |
| `light`, `probe_findings`, `narrow`, `path` | optical power, lost fibres, probe frames, the path of a packet |
| `findings`, `proof` | the table of findings, and the proof that judges all evidence at once |
| `unfinished`, `recovery` | unfinished operations; resume and rollback |
| `repair` | detours around lost fibres, then new circuits |
| `discovery`, `drift` | discovery of the wiring by light, and losses over time |
"""
