"""Models over HTTP: the Open Inference Protocol, version 2.

| module | contents |
|---|---|
| `binary`, `v2` | codecs of tensors and documents, without sockets |
| `metrics` | counters, and their text for Prometheus |
| `asgi` | bodies and replies in plain ASGI |
| `fast_path` | the route `infer`: checks, keys, deadline and answer of a request |
| `app` | all other routes (FastAPI), and the whole application |
"""
