"""Measurements: collectives, results of nccl-tests, records of runs, reports.

| room | what lives there |
|---|---|
| `model`, `units` | timings and byte counters; figures with units |
| `results` | the database and the files of runs |
| `collectives` | AllReduces and transfers, measured on hosts or modelled |
| `nccl` | nccl-tests: launched, and their output read |
| `gain`, `stall` | gains of many rings, gaps in a TCP stream |
| `report` | one run as one HTML file |
| `second_topology` | a job that the first topology serves badly, and the plan made for it |
| `current_topology` | measurements on the circuits that are in force |
| `job` | whole jobs: patch and measure twice |
| `plan_job` | an iteration of a plan as a job |
| `sharing` | jobs that share a lab |
| `trends` | series over runs, and where they change |
"""
