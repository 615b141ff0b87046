"""Two models on one device, asked at once and swapped meanwhile."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from libraries import skip_without

skip_without("qick", reason="the kit's twin is a QickSoc")

import lightning
from lightning.execution import open_executor
from lightning.serving.repository import Repository


@pytest.mark.long
def test_models_on_one_device_answer_together_and_while_one_is_swapped(model, other_model, images):
    device = lightning.connect("sim://kit")
    repository = Repository(lambda each: open_executor(each, "device", device=device))
    repository.load("m", model)
    repository.load("n", other_model)

    def ask(name):
        with repository.acquire(name) as instance:
            return instance.run(images, np.arange(len(images))).classes.tolist()

    alone = {name: ask(name) for name in "mn"}
    with ThreadPoolExecutor(3) as pool:
        asked = [(name, pool.submit(ask, name)) for name in "mnmn"]
        swapped = pool.submit(repository.load, "m", model)
        assert [found.result() for _, found in asked] == [alone[name] for name, _ in asked]
        assert swapped.result().version == "2"
    assert ask("m") == alone["m"]
    repository.close()
