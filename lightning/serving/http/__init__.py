"""Models over HTTP: the Open Inference Protocol, version 2.

| module | what it is for |
|---|---|
| `binary`, `v2` | numbers of every datatype; the documents of the protocol; both without sockets |
| `answering` | a request and a loaded model: checks, keys, deadline |
| `counts`, `metrics` | what happened, and as Prometheus reads it |
| `asgi`, `fast_path` | bodies and replies; the route `infer`, as bare ASGI |
| `app`, `openapi` | all other routes (FastAPI), and both together |
"""
