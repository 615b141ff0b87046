"""Modules of torch that networks are made of, and modules that are refused. Tests import this as they run."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    def __init__(self, channels, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding="same", bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.around = nn.Sequential()
        if stride > 1:
            self.around = nn.Sequential(nn.Conv2d(channels, after, 1, stride), nn.BatchNorm2d(after))

    def forward(self, x):
        inner = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        inner = self.bn2(self.conv2(inner))
        inner += self.around(x)
        return functional.relu(inner)


class Attention(nn.Module):
    def __init__(self, width=16, heads=4):
        super().__init__()
        self.norm, self.heads = nn.LayerNorm(width), heads
        self.together, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.place = nn.Parameter(torch.randn(1, 6, width))
        self.feed = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Dropout(0.3), nn.Linear(32, width))

    def forward(self, x):
        images, length, width = x.shape
        x = torch.cat([self.token.expand(images, -1, -1), x], dim=1) + self.place
        parts = self.together(self.norm(x)).view(images, length + 1, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(0, 2, 3, 1, 4).unbind(1)
        scores = query @ key.transpose(-2, -1) / (width // self.heads) ** 0.5
        seen = (scores.softmax(dim=-1) @ value).transpose(1, 2).reshape(images, length + 1, width)
        x = x + self.out(seen)
        return (x + self.feed(x))[:, 0]


class Follows(nn.Module):
    """A convolution or a product, and what a test does with it."""

    def __init__(self, steps, first=None):
        super().__init__()
        self.first, self.steps = first or nn.Linear(5, 4), steps
        self.rectify = nn.ReLU(inplace=True)
        self.drop = nn.Dropout()

    def forward(self, x):
        return self.steps(self, self.first(x))


class Loop(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Pair(nn.Module):
    def forward(self, x, y):
        return x + y


class Two(nn.Module):
    def forward(self, x):
        return x, x + 1


class Nothing(nn.Module):
    def forward(self, x):
        return torch.ones(1, 3)


class Mixing(nn.Module):
    def forward(self, x):
        return x.reshape(-1, 2)


class Moving(nn.Module):
    def forward(self, x):
        return x.transpose(0, 1)


class Sorting(nn.Module):
    def forward(self, x):
        return torch.sort(x)[0]


class Broken(nn.Module):
    def forward(self, x):
        return functional.relu(x, 1, 2, 3, 4, 5) if x is None else functional.max_pool2d(x, 99)
