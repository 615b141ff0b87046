"""Networks are compiled on the way, and never with the images that they are tested on."""

import numpy as np
import pytest

from lightning.compiler import Options, compile_network, save_model
from lightning.errors import DatasetError
from lightning.evaluation import Dataset, load_dataset
from lightning.evaluation.models import load_model_and_data
from lightning.networks import load_network


@pytest.fixture
def biased(tmp_path):
    """Return a network with biases, which needs ranges."""
    rng = np.random.default_rng(7)
    np.savez(
        tmp_path / "net.npz", w1=rng.normal(size=(5, 6)), b1=rng.normal(size=5), w2=rng.normal(size=(3, 5))
    )
    return tmp_path / "net.npz"


@pytest.fixture
def plain(tmp_path):
    rng = np.random.default_rng(7)
    np.savez(tmp_path / "plain.npz", w1=rng.normal(size=(3, 6)))
    return tmp_path / "plain.npz"


@pytest.fixture
def data():
    rng = np.random.default_rng(8)
    x = rng.integers(0, 256, (700, 2, 3)).astype(np.uint8)
    return Dataset("own", x, rng.integers(0, 3, 700), x[:0], np.zeros(0, np.int64))


def test_weights_without_biases_are_the_published_scheme_and_need_no_samples(plain, data):
    model, tested = load_model_and_data(plain, data)
    assert model.scheme == "published"
    assert tested is data


def test_ranges_come_from_the_training_part(biased, data):
    split = Dataset("own", data.x[:100], data.y[:100], data.x[100:], data.y[100:])
    model, tested = load_model_and_data(biased, split)
    assert model.scheme == "scaled"
    assert tested is split
    assert model.origin["samples"]["images"] == 500


def test_images_are_put_aside_where_there_is_no_training_part(biased, data):
    model, tested = load_model_and_data(biased, data)
    assert (len(tested.x), len(tested.train_x)) == (200, 500)
    assert model.origin["samples"]["images"] == 500
    seen = {image.tobytes() for image in tested.train_x}
    assert not any(image.tobytes() in seen for image in tested.x)


@pytest.mark.slow
def test_so_are_those_that_a_file_was_compiled_with(biased, data, tmp_path):
    aside = data.separate_samples().train_x
    for samples, images in ((aside, 200), (aside[:-1], 700)):
        save_model(compile_network(load_network(biased), samples, Options()), tmp_path / "net.lng")
        _, tested = load_model_and_data(tmp_path / "net.lng", data)
        assert len(tested.x) == images


def test_too_few_images_are_refused(biased, data):
    with pytest.raises(DatasetError, match="too few"):
        load_model_and_data(biased, data.take_first(500))


def test_digits_bring_their_own_samples(digits_npz):
    _, tested = load_model_and_data(digits_npz, load_dataset("digits"))
    assert len(tested.x) == 500


@pytest.mark.parametrize(("kind", "scale"), [(np.uint8, 1 / 255), (np.float32, 1.0)])
def test_bytes_are_levels_and_floats_are_taken_as_they_are(kind, scale, biased, data):
    given = Dataset("own", data.x.astype(kind), data.y, data.x[:0], data.train_y)
    assert load_model_and_data(biased, given)[0].network.preprocessing.scale == scale
