"""Photographs that scikit-learn ships, as JPEG files in memory: decoded, cropped, flipped, recoloured."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torchvision.transforms import v2  # type: ignore[import-not-found, unused-ignore]

from testbed.offload.workloads.timed import TimedStep

COUNT = 512
SIDE = 224


class Photographs:
    """Parts of two photographs as JPEG files, which reading an element decodes."""

    def __init__(self) -> None:
        self.files = []
        sources = load_sample_images().images
        for number in range(32):
            source = sources[number % len(sources)]
            top, left = 5 * number, 10 * number
            file = io.BytesIO()
            Image.fromarray(source[top : top + 256, left : left + 320]).save(file, "JPEG", quality=90)
            self.files.append(file.getvalue())

    def __len__(self) -> int:
        """Return the number of images; parts come again."""
        return COUNT

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """Return a decoded image and its class."""
        number = index % len(self.files)
        return np.asarray(Image.open(io.BytesIO(self.files[number]))), number % 2


class Augment:
    """The augmentation of a training on ImageNet: a random part, flipped, recoloured, normalised."""

    def __init__(self) -> None:
        self.steps = v2.Compose(
            [
                v2.ToImage(),
                v2.RandomResizedCrop(SIDE, antialias=True),
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(0.4, 0.4, 0.4),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            ]
        )

    def __call__(self, element: tuple[Any, int]) -> tuple[Any, int]:
        """Return the augmented image, a plain tensor, and its class."""
        image, label = element
        return self.steps(image).as_subclass(torch.Tensor), label


dataset = Photographs()
transform = Augment()
batch_size = 32
step = TimedStep(0.05)
simulated = True
