"""Make it so: plan, journal, apply, verify.

| room | what lives there |
|---|---|
| `intent`, `design`, `choice`, `confirmation` | what is stored, what a command means, applies that wait for a person |
| `plan`, `planned_change`, `change_file`, `durations` | steps that are missing, what they touch, how long they take |
| `engine`, `journal`, `apply`, `session` | states of a step, its record, all steps of a plan, a lab in hand |
| `direct` | a switch that is written by its address alone |
| `light`, `probe_findings`, `narrow`, `path` | light, lost fibres, probe frames, the way of a packet |
| `findings`, `proof` | the table of findings, and the proof that judges all evidence at once |
| `unfinished`, `recovery` | operations that ended too early; resume and rollback |
| `repair` | around lost fibres, then by other circuits |
| `discovery`, `drift` | fibres found by light, and losses over time |
"""
