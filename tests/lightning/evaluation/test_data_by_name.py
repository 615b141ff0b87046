"""Data by name: the same parts for everybody, and errors that say what to do."""

import numpy as np
import pytest

from lightning.errors import DatasetError
from lightning.evaluation import Dataset, load_dataset


@pytest.fixture
def arrays():
    rng = np.random.default_rng(1)
    return {"x": rng.random((20, 4)), "y": rng.integers(0, 3, 20)}


def kept(path, **arrays):
    np.savez(path, **arrays)
    return path


def refused(name):
    with pytest.raises(DatasetError) as caught:
        load_dataset(name)
    assert caught.value.hint
    return caught.value.problem


def test_digits_are_the_same_for_everybody():
    pytest.importorskip("sklearn", reason="scikit-learn brings the digits along")
    found = load_dataset("digits")
    assert (found.x.shape, found.train_x.shape) == ((500, 8, 8), (1297, 8, 8))
    assert (found.x.dtype, found.x.min(), found.x.max()) == (np.uint8, 0, 255)
    assert found.x[0, 0].tolist() == [0, 0, 0, 223, 191, 16, 0, 0]  # levels 14, 12 and 1 of 16
    assert found.y[:10].tolist() == list(range(10))
    assert set(found.y.tolist()) == set(range(10))


def test_arrays_of_ones_own(tmp_path, arrays):
    found = load_dataset(kept(tmp_path / "own.npz", **arrays))
    assert (found.name, found.x.tolist()) == ("own.npz", arrays["x"].tolist())
    assert found.y.tolist() == arrays["y"].tolist()
    assert len(found.train_x) == 0
    assert list(found.origin) == ["own.npz"]


def test_arrays_with_a_training_part(tmp_path, arrays):
    x, y = arrays["x"], arrays["y"]
    path = kept(tmp_path / "own.npz", x_train=x[:15], y_train=y[:15], x_test=x[15:], y_test=y[15:])
    found = load_dataset(str(path))
    assert (len(found.x), len(found.train_x)) == (5, 15)
    assert found.select_training().y.tolist() == y[:15].tolist()


@pytest.mark.parametrize(
    ("changed", "reported"),
    [
        ({"y": np.zeros(19)}, "of the test part do not match"),
        (
            {"y": np.zeros((20, 2))},
            "of the test part do not match",
        ),
        ({"y": np.full(20, 0.5)}, "y has classes that are not integers"),
        ({"y": np.array(["cat"] * 20)}, "y has classes that are not integers"),
        ({"x": np.full((20, 4), np.nan)}, "NaN"),
        ({"x": np.zeros((0, 4)), "y": np.zeros(0)}, "no images"),
        ({"x": np.array([["a"]] * 20)}, "<U1"),
        (
            {"x": np.array([[None]] * 20)},
            "is not an .npz of plain arrays (Object arrays cannot be loaded when",
        ),
    ],
)
def test_arrays_that_do_not_do_are_refused(tmp_path, arrays, changed, reported):
    assert reported in refused(kept(tmp_path / "own.npz", **{**arrays, **changed}))


def test_other_arrays_are_named(tmp_path, arrays):
    assert "labels, pixels" in refused(kept(tmp_path / "own.npz", pixels=arrays["x"], labels=arrays["y"]))


def test_a_damaged_file_is_refused(tmp_path, arrays):
    path = kept(tmp_path / "own.npz", **arrays)
    content = path.read_bytes()
    refusals = 0
    for place in range(0, len(content), 97):
        path.write_bytes(content[:place])
        assert str(path) in refused(str(path))
        refusals += 1
    assert refusals > 5


@pytest.mark.parametrize("name", ["digit", "mnist:", "nsl-kdd", "images.csv", ""])
def test_an_unknown_name_says_which_there_are(name):
    with pytest.raises(DatasetError, match="mnist:DIR"):
        load_dataset(name)
    assert f"{name!r} is not a known dataset" in refused(name)


def test_samples_are_put_aside_from_all_over():
    x, y = np.arange(100.0).reshape(50, 2), np.arange(50)
    found = Dataset("sorted", x, y, x[:0], y[:0]).separate_samples(10)
    assert found.train_y.tolist() == list(range(0, 50, 5))
    assert sorted([*found.y, *found.train_y]) == list(range(50))
    assert found.separate_samples(20) is found
    with pytest.raises(DatasetError, match="too few"):
        Dataset("sorted", x, y, x[:0], y[:0]).separate_samples(50)


def test_there_is_no_training_part_to_test_on(arrays):
    empty = Dataset("own", arrays["x"], arrays["y"], arrays["x"][:0], arrays["y"][:0])
    with pytest.raises(DatasetError, match="no training part"):
        empty.select_training()
    assert len(empty.take_first(7).x) == 7
