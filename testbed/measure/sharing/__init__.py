"""Jobs that share a lab, run on its hosts.

| module | what it holds |
|---|---|
| `policies` | how links are shared: queues, transport and starts of each policy, and what the model predicts for it |
| `links` | the links that the bursts of a job take on the topology in force |
| `queues` | queues of NICs, held while jobs run and put back afterwards |
| `agents` | the agents of the hosts: their input, and what they report |
| `measurement` | jobs under one policy after another, on an open lab |
| `record` | measurements on record, and jobs taken from them |
"""
