"""Fabrics by name, ready to run jobs on: one file per fabric or family of fabrics.

| module | fabrics |
|---|---|
| `fabric_list` | the table of all fabrics |
| `kind` | a kind of fabric, a request for one, and the fabric that a job runs on |
| `ideal` | `ideal` |
| `fat_tree` | `fattree`, `oversub` |
| `direct` | `direct`, with routes and rings on it |
| `expander` | `expander` |
| `circuits` | `circuits`, `circuits-forwarding` |
"""

HB_GBPS = 2400.0
"""Default rate of a GPU inside its domain of high bandwidth, each way: NVLink of an A100, 300 GB/s."""
