"""Answers over the network: models by name, over HTTP (Open Inference Protocol) and in UDP packets.

    from lightning.serving import Repository
    repository = Repository(lambda model: open_executor(model, "noisy", seed=1))
    repository.load("lenet", "lenet.lng")
    with repository.acquire("lenet") as loaded:
        answers = loaded.run(images, keys)

| module | what it is for |
|---|---|
| `loaded` | one version of a model, warm |
| `repository` | loaded models by name, swapped under load |
| `binary` | numbers of every datatype, from bytes and to bytes |
| `v2` | the documents of the Open Inference Protocol, without sockets |
| `answering` | a request and a loaded model: checks, keys, deadline |
| `counts`, `metrics` | what happened, and as Prometheus reads it |
| `asgi`, `hot` | bodies and replies; the route `infer`, as bare ASGI |
| `http`, `openapi` | all other routes (FastAPI), and both together |
| `server` | sockets, signals, the end |
| `packets` | inference packets, without sockets |
| `datagrams`, `rounds` | the packet server: its thread; from a datagram to its outcome |
| `many`, `reassembly`, `replays`, `packet_counts` | many datagrams at a time, fragments, repetitions, outcomes |
| `services`, `express`, `round_kernel` | a model as packets see it; the same in machine code |
"""

from lightning.serving.loaded import Loaded
from lightning.serving.repository import Repository

__all__ = ["Loaded", "Repository"]
