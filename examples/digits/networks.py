"""Two networks for images of 8 x 8: a chain of dense layers, and a residual one of convolutions."""

from __future__ import annotations

import torch
from torch import nn


class MLP(nn.Sequential):
    """64-64-32-10: 6,464 weights."""

    def __init__(self) -> None:
        dense = (nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        super().__init__(nn.Flatten(), *dense)


class Block(nn.Module):
    """Two convolutions and a way round them; the first may halve the picture."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(after)
        same = before == after and stride == 1
        self.way_round = nn.Identity() if same else nn.Conv2d(before, after, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        deep = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(deep)) + self.way_round(x))


class ResNet8(nn.Sequential):
    """Seven convolutions, six of them in three blocks, two 1 x 1 ways round, and a dense layer at the end."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 8, 3, 1, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            Block(8, 8, 1),
            Block(8, 16, 2),
            Block(16, 32, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 10),
        )
