"""Answers over the network: models by name, over HTTP (Open Inference Protocol) and in UDP packets.

    from lightning.serving import Repository
    repository = Repository(lambda model: open_executor(model, "noisy", seed=1))
    repository.load("lenet", "lenet.lng")
    with repository.acquire("lenet") as instance:
        answers = instance.run(images, keys)

| module | what it is for |
|---|---|
| `model_instance` | one version of a model, warm |
| `repository` | loaded models by name, swapped under load |
| `http` | the Open Inference Protocol |
| `packets` | inference packets |
| `server` | sockets, signals, the end |
"""

from lightning.serving.model_instance import ModelInstance
from lightning.serving.repository import Repository

__all__ = ["ModelInstance", "Repository"]
