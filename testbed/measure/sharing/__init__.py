"""Jobs that share a lab, run on its hosts.

| module | contents |
|---|---|
| `policies` | how links are shared: queues, transport and starts of each policy, and what the model predicts for it |
| `agents` | the agents of the hosts: their input, and what they report |
| `measurement` | jobs under one policy after another, on an open lab with their queues set |
| `host_run` | the same as a recorded run, and jobs read from records |
| `job_sets` | the sets of jobs of `testbed reproduce sharing` |
"""
