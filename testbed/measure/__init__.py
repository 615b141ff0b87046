"""Measurements: collectives, results of nccl-tests, records of runs, reports.

| package | contents |
|---|---|
| `model`, `units` | timings and byte counters; numbers with units |
| `results` | the database and the files of runs |
| `collectives` | AllReduces and transfers, measured on hosts or modelled |
| `nccl` | launches of nccl-tests, and parsers of their output |
| `gain`, `stall` | gain of several rings, gaps in a TCP stream |
| `report` | HTML report of a run |
| `second_topology` | a job that the first topology serves badly, and a plan for it |
| `current_topology` | measurements on the topology in force |
| `job` | the main job: patch and measure twice |
| `plan_job` | a training iteration of a plan, as a job |
| `sharing` | jobs that share a lab |
| `trends` | series over runs, and their change points |
"""
