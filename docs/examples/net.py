"""A model of one's own: `opcost profile docs/examples/net.py:build --allow-code` runs build()."""

import torch
from torch import nn


class Scale(nn.Module):
    """Multiplies channels by weights of its own."""

    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels, 1, 1))

    def forward(self, images):
        return images * self.weight.sigmoid()


def residual(block, images):
    return torch.relu(images + block(images))


class Net(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.block = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), Scale(channels))
        self.mix = nn.Parameter(torch.randn(channels, 10))

    def forward(self, images):
        features = residual(self.block, self.stem(images)).mean((2, 3))
        return torch.einsum("bc,cn->bn", features, self.mix)


def build(channels=64):
    """Return the model and its example inputs."""
    return Net(channels), torch.randn(32, 3, 64, 64)
