"""Networks whose weak layer is known, and a small one that knows digits."""

import numpy as np
import pytest

BLOCKS, WIDTH = 8, 8


def differences():
    """Return weights (8, 64): each row adds up one block of inputs with small weights, so with little light."""
    return np.kron(np.eye(BLOCKS), np.full((1, WIDTH), 0.1)).astype(np.float32)


@pytest.fixture
def bright_blocks(tmp_path):
    """200 rows of 64 levels, of which one block of 8 is brighter than the others; its number is the class."""
    y = np.arange(200) % BLOCKS
    x = np.where(np.repeat(np.eye(BLOCKS)[y], WIDTH, axis=1) > 0, 130, 100).astype(np.uint8)
    np.savez(tmp_path / "blocks.npz", x=x, y=y)
    return tmp_path / "blocks.npz"


@pytest.fixture
def weak(tmp_path):
    """Write a chain in which layer `fc1` or `fc2` adds up faint light; the other passes bright light on."""

    def written(layer):
        weights = {
            "fc1": {"w1": differences(), "w2": np.eye(BLOCKS, dtype=np.float32)},
            "fc2": {"w1": np.eye(BLOCKS * WIDTH, dtype=np.float32), "w2": differences()},
        }[layer]
        np.savez(tmp_path / f"weak-{layer}.npz", **weights)
        return tmp_path / f"weak-{layer}.npz"

    return written


@pytest.fixture(scope="session")
def digits_npz(tmp_path_factory):
    """Random features and a linear fit on scikit-learn's digits, no biases: small, and right nine times of ten."""
    pytest.importorskip("sklearn", reason="scikit-learn brings the digits along")
    from lightning.evaluation import load_dataset

    data = load_dataset("digits")
    x = data.train_x.reshape(len(data.train_x), -1) / 255
    w1 = np.random.default_rng(4).normal(0, 0.2, (48, 64))
    hidden = np.maximum(x @ w1.T, 0)
    wanted = np.eye(10)[data.train_y] - 0.1
    w2 = np.linalg.solve(hidden.T @ hidden + 3 * np.eye(48), hidden.T @ wanted).T
    path = tmp_path_factory.mktemp("digits") / "digits.npz"
    np.savez(path, w1=w1 / np.abs(w1).max(), w2=w2 / np.abs(w2).max())
    return path
