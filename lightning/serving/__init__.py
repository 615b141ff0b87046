"""Inference over the network, by HTTP (Open Inference Protocol) and UDP packets.

    from lightning.serving import Repository
    repository = Repository(lambda model: open_executor(model, "noisy", seed=1))
    repository.load("lenet", "lenet.lng")
    with repository.acquire("lenet") as instance:
        answers = instance.run(images, keys)

| module | contents |
|---|---|
| `model_instance` | a version of a model with its warm executor |
| `repository` | loaded models by name, replaced under load |
| `http` | the Open Inference Protocol |
| `packets` | inference packets |
| `server` | server processes: sockets, signals, shutdown |
| `nic` | models on a simulated smartNIC behind a TAP device |
"""

from lightning.serving.model_instance import ModelInstance
from lightning.serving.repository import Repository

__all__ = ["ModelInstance", "Repository"]
