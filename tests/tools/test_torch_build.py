"""The build of torch to install: the CPU build where there is no GPU, and what was named where it was named."""

from __future__ import annotations

import importlib.metadata

import pytest

from tools.installation.torch_build import VERSION, VISION, choose_build, has_gpu

NEVER, HERE, PYTORCH = "nowhere", "torch==9.9+cpu", "PyTorch's index"


def choice(where, *, gpu=False, torch_index="", no_index=False):
    """Return the build that is chosen when a CPU build is found `where`, and the requests on the way."""
    asked = []

    def is_available(build):
        asked.append(PYTORCH if build.environment else build.requirement)
        return asked[-1] == where

    build = choose_build(
        gpu=gpu, torch_index=torch_index, no_index=no_index, is_available=is_available, version="9.9"
    )
    return build.requirement, dict(build.environment), asked


def test_the_folders_and_indexes_of_pip_come_first():
    assert choice(HERE) == ("torch==9.9+cpu", {}, [HERE])


def test_then_the_index_of_pytorch():
    assert choice(PYTORCH) == ("torch==9.9", {"UV_TORCH_BACKEND": "cpu"}, [HERE, PYTORCH])


def test_then_what_there_is_with_its_size_and_a_way_out():
    assert choice(NEVER) == ("torch==9.9", {}, [HERE, PYTORCH])
    build = choose_build(gpu=False, torch_index="", no_index=False, is_available=lambda _: False)
    assert "GB" in build.reason
    assert "TORCH_INDEX=" in build.reason


def test_no_index_of_others_is_asked_where_pip_may_ask_none():
    assert choice(NEVER, no_index=True) == ("torch==9.9", {}, [HERE])


@pytest.mark.parametrize("reason", [{"gpu": True}, {"torch_index": "https://t.example/cu130"}])
def test_with_a_gpu_or_an_index_for_torch_the_best_is_taken(reason):
    assert choice(HERE, **reason) == ("torch==9.9", {}, [])


@pytest.mark.slow
def test_a_gpu_is_a_device_or_its_command(tmp_path):
    devices, commands = tmp_path / "dev", tmp_path / "bin"
    devices.mkdir()
    commands.mkdir()
    assert not has_gpu(devices, str(commands))
    (devices / "nvidia0").touch()
    assert has_gpu(devices, str(commands))
    (devices / "nvidia0").unlink()
    (commands / "nvidia-smi").touch(0o755)
    assert has_gpu(devices, str(commands))


@pytest.mark.long
def test_torchvision_is_the_one_that_was_built_for_this_torch():
    name, _, version = VISION.partition("==")
    found = importlib.metadata.distribution(name)
    assert found.version.partition("+")[0] == version
    assert f"torch=={VERSION}" in {
        asked.replace(" ", "").translate({40: "", 41: ""}) for asked in found.requires
    }
