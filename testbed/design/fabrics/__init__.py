"""Fabrics by name, on which jobs run: one module per fabric or family of fabrics.

| module | fabrics |
|---|---|
| `fabric_list` | the table of all fabrics |
| `kind` | the description of a fabric, the request for one, and the fabric that a job runs on |
| `ideal` | `ideal` |
| `fat_tree` | `fattree`, `oversub` |
| `direct` | `direct`, with its routes and rings |
| `expander` | `expander` |
| `circuits` | `circuits`, `circuits-forwarding` |
| `rails` | `rail-only`, `rail-optimized` |
| `sip_ml` | `sip-ocs`, `sip-ring` |
| `mixnet` | `mixnet` |
"""

HB_GBPS = 2400.0
"""Default rate of a GPU within its high-bandwidth domain, each way: NVLink of an A100, 300 GB/s."""
