"""Models over HTTP: the Open Inference Protocol, version 2.

| module | contents |
|---|---|
| `binary`, `v2` | tensors of every datatype; the documents of the protocol; both without sockets |
| `metrics` | counters, and their text for Prometheus |
| `asgi` | bodies and replies in plain ASGI |
| `fast_path` | the route `infer`: checks, keys, deadline and answer of a request |
| `app` | all other routes (FastAPI), and the whole application |
"""
