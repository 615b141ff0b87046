"""MNIST's files: read as they are published, and refused by name when they are something else."""

import gzip
import struct

import numpy as np
import pytest

from lightning.errors import DatasetError
from lightning.evaluation import load_dataset
from lightning.evaluation.datasets import parse_idx, read_idx


def idx(array):
    """Return the bytes of an IDX file."""
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (12, 28, 28)).astype(np.uint8)


@pytest.fixture
def labels():
    return np.arange(12, dtype=np.uint8) % 10


@pytest.fixture
def folder(tmp_path, images, labels):
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(images))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(labels))
    return tmp_path


def refused(folder):
    with pytest.raises(DatasetError) as caught:
        load_dataset(f"mnist:{folder}")
    assert caught.value.hint
    return caught.value.problem


def test_the_test_images_are_read(folder, images, labels):
    found = load_dataset(f"mnist:{folder}")
    assert (found.x == images).all()
    assert found.y.tolist() == labels.tolist()
    assert found.train_x.shape == (0, 28, 28)
    assert sorted(found.origin) == ["t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]


@pytest.mark.parametrize("ending", ["idx3-ubyte", "idx3-ubyte.gz"])
def test_names_with_a_point_and_compressed_files_are_the_same(ending, folder, images):
    plain = folder / "t10k-images-idx3-ubyte"
    content = plain.read_bytes()
    plain.unlink()
    (folder / f"t10k-images.{ending}").write_bytes(
        gzip.compress(content) if ending.endswith("gz") else content
    )
    assert (load_dataset(f"mnist:{folder}").x == images).all()


def test_training_images_are_the_training_part(folder, images, labels):
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(255 - images)))
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(9 - labels)))
    found = load_dataset(f"mnist:{folder}")
    assert (found.train_x == 255 - images).all()
    assert (found.select_training().x == 255 - images).all()
    assert found.select_training().y.tolist() == (9 - labels).tolist()


def test_a_missing_file_is_named(folder):
    (folder / "t10k-labels-idx1-ubyte").unlink()
    assert "t10k-labels-idx1-ubyte" in refused(folder)
    assert "is not a folder" in refused(folder / "nowhere")


def test_labels_that_are_not_as_many_are_refused(folder, labels):
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx(labels[:-1]))
    assert "(12, 28, 28)" in refused(folder)


def test_exchanged_files_are_refused(folder, images, labels):
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx(labels))
    assert "1 axes" in refused(folder)


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (b"", "begins with nothing"),
        (b"\x00\x00\x0d\x01" + bytes(8), "00 00 0d 01"),
        (b"PK\x03\x04 a zip", "50 4b 03 04"),
        (bytes([0, 0, 8, 3, 0, 0]), "ends within its head"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 5, 1, 2]), "2 values, but its header announces 5"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 1, 1, 2]), "2 values, but its header announces 1"),
        (bytes([0, 0, 8, 3]) + b"\xff" * 12 + b"\0", "1 values, but its header announces"),
    ],
)
def test_other_bytes_are_refused(content, reported):
    with pytest.raises(DatasetError, match=reported):
        parse_idx(content)


def test_a_truncated_gzip_is_refused(folder):
    path = folder / "t10k-images-idx3-ubyte"
    path.write_bytes(gzip.compress(path.read_bytes())[:-40])
    with pytest.raises(DatasetError, match="cannot be unpacked"):
        read_idx(path)
