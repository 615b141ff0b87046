"""Jobs that share a lab, run on its hosts.

| module | contents |
|---|---|
| `policies` | queues, transport and start times under each policy, and the model's prediction |
| `agents` | the agents of the hosts: their input and their reports |
| `measurement` | jobs under one policy after another, on an open lab |
| `host_run` | measurements as a recorded run, and jobs read from records |
| `job_sets` | the sets of jobs of `testbed reproduce sharing` |
"""
