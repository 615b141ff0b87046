"""Models over HTTP: the Open Inference Protocol, version 2.

| module | what it is for |
|---|---|
| `binary`, `v2` | numbers of every datatype; the documents of the protocol; both without sockets |
| `metrics` | what happened, and as Prometheus reads it |
| `asgi` | bodies and replies, as bare ASGI |
| `fast_path` | the route `infer`: checks, keys and deadline of a request, and its answer |
| `app` | all other routes (FastAPI), and both together |
"""
