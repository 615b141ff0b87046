"""Workload: photographs from scikit-learn as JPEG files in memory. Pillow decodes, torchvision augments them."""

from __future__ import annotations

import ctypes
import importlib.util
import io
import sys
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from testbed.offload.workloads.timed import TimedStep

IMAGE_COUNT = 512
SIDE_PIXELS = 224
CHANNEL_MEANS, CHANNEL_DEVIATIONS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

DETECTION_OPERATORS = ("nms", "qnms")


class Photographs:
    """Crops of two photographs, kept as JPEG files. Reading an element decodes it."""

    def __init__(self) -> None:
        self.files = []
        photographs = load_sample_images().images
        for number in range(32):
            photograph = photographs[number % len(photographs)]
            top_pixel, left_pixel = 5 * number, 10 * number
            file = io.BytesIO()
            Image.fromarray(photograph[top_pixel : top_pixel + 256, left_pixel : left_pixel + 320]).save(
                file, "JPEG", quality=90
            )
            self.files.append(file.getvalue())

    def __len__(self) -> int:
        """Return the number of images. The 32 crops repeat."""
        return IMAGE_COUNT

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """Return a decoded image and its class."""
        number = index % len(self.files)
        return Image.open(io.BytesIO(self.files[number])).convert("RGB"), number % 2


class Augment:
    """Augmentation by torchvision: random crop at a fixed size, random flip, colour jitter, normalisation.

    The transforms are created where they run, so each worker imports torchvision itself.
    """

    def __init__(self) -> None:
        self._transform: Any = None

    def __call__(self, element: tuple[Any, int]) -> tuple[Any, int]:
        """Return the augmented image and its class."""
        image, label = element
        self._transform = self._transform or _make_transform()
        return self._transform(image), label

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the transforms."""
        return Augment, ()


def _make_transform() -> Any:
    transforms = import_transforms()
    return transforms.Compose(
        [
            transforms.PILToTensor(),
            transforms.RandomResizedCrop(SIDE_PIXELS, scale=(0.25, 1.0), antialias=True),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4),
            transforms.ToDtype(torch.float32, scale=True),
            transforms.Normalize(CHANNEL_MEANS, CHANNEL_DEVIATIONS),
        ]
    )


def import_transforms() -> Any:
    """Return torchvision's transforms, even if its compiled operators do not load.

    The package index has torchvision only for torch with CUDA. With a CPU build of torch, the import of torchvision
    fails where it registers operators of its compiled library. No transform needs these operators, so it is enough to
    declare them.
    """
    if "torchvision" not in sys.modules and not _loads_operators():
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in DETECTION_OPERATORS:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        # The operators exist only while `library` does. A workload cannot hold it, because it cannot be pickled.
        torch.library.lightbed_declared = library
    from torchvision.transforms import v2

    return v2


def _loads_operators() -> bool:
    """Return whether torchvision's compiled library loads. Without torchvision, return True: its import will fail."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return True
    try:
        ctypes.CDLL(str(Path(spec.origin).with_name("_C.so")))
    except OSError:
        return False
    return True


import_transforms()  # so that a missing library fails when the workload is loaded
dataset = Photographs()
transform = Augment()
batch_size = 32
step = TimedStep(0.05)
simulated = True
