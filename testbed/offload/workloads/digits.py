"""Workload: handwritten digits of scikit-learn, rotated, shifted and noisy, at 64 by 64 pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from testbed.offload.workloads.timed import TimedStep

SIDE_PIXELS = 64


class Digits:
    """The 1,797 digits of scikit-learn, of 8 by 8 pixels, and their classes."""

    def __init__(self) -> None:
        digits = load_digits()
        self.images = digits.images.astype(np.float32) / 16
        self.classes = digits.target.astype(np.int64)

    def __len__(self) -> int:
        """Return the number of digits."""
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """Return a digit and its class."""
        return self.images[index], int(self.classes[index])


def augment(element: tuple[Any, int]) -> tuple[Any, int]:
    """Enlarge a digit, rotate it by up to 15 degrees, shift it by up to 4 pixels, blur it, and add noise."""
    image, label = element
    angle_radians = np.random.uniform(-15, 15) * np.pi / 180  # noqa: NPY002 - the generator that a loader seeds
    shift = np.random.uniform(-4, 4, 2)  # noqa: NPY002
    rows, columns = np.mgrid[0:SIDE_PIXELS, 0:SIDE_PIXELS].astype(np.float32) - (SIDE_PIXELS - 1) / 2
    source_rows = np.cos(angle_radians) * rows - np.sin(angle_radians) * columns + shift[0]
    source_columns = np.sin(angle_radians) * rows + np.cos(angle_radians) * columns + shift[1]
    source_indices = [
        np.clip((coordinates / SIDE_PIXELS + 0.5) * 8, 0, 7).astype(np.int64)
        for coordinates in (source_rows, source_columns)
    ]
    scaled_image = image[source_indices[0], source_indices[1]]
    frequencies = np.fft.rfft2(scaled_image)
    decay = np.exp(-np.linspace(0, 4, frequencies.shape[1]))
    blurred_image = np.fft.irfft2(frequencies * decay, s=scaled_image.shape)
    noise = np.random.normal(0, 0.05, blurred_image.shape)  # noqa: NPY002
    return (blurred_image + noise).astype(np.float32)[None], label


dataset = Digits()
transform = augment
batch_size = 32
step = TimedStep(0.004)
simulated = True
