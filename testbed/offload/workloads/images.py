"""Photographs that scikit-learn ships, as JPEG files in memory: decoded, cropped, flipped, recoloured by Pillow."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageEnhance
from sklearn.datasets import load_sample_images

from testbed.offload.workloads.timed import TimedStep

COUNT = 512
SIDE = 224
MEANS, DEVIATIONS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


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
        return Image.open(io.BytesIO(self.files[number])).convert("RGB"), number % 2


def augment(element: tuple[Any, int]) -> tuple[Any, int]:
    """Return a random part of the image at one size, perhaps mirrored, recoloured and normalised, and its class."""
    image, label = element
    side = int(min(image.size) * random.uniform(0.5, 1.0))
    left, top = (random.randint(0, size - side) for size in image.size)
    part = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, (left, top, left + side, top + side))
    if random.random() < 0.5:
        part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    for change in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        part = change(part).enhance(random.uniform(0.6, 1.4))
    values = torch.from_numpy(np.asarray(part, dtype=np.float32) / 255)
    return ((values - torch.tensor(MEANS)) / torch.tensor(DEVIATIONS)).permute(2, 0, 1).contiguous(), label


dataset = Photographs()
transform = augment
batch_size = 32
step = TimedStep(0.05)
simulated = True
