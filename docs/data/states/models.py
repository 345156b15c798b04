"""Two networks of one's own, held back from sums in state: gated convolutions of sound, and a mixer of patches."""

import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.norm, self.out = nn.GroupNorm(1, channels), nn.Conv1d(channels, channels, 1)
        self.wide = nn.Conv1d(channels, 2 * channels, 3, padding=dilation, dilation=dilation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values, gates = self.wide(self.norm(x)).chunk(2, 1)
        return x + self.out(torch.tanh(values) * torch.sigmoid(gates))


class Mix(nn.Module):
    def __init__(self, patches: int, channels: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(2))
        self.over_patches = nn.Sequential(nn.Linear(patches, 2 * patches), nn.GELU(), nn.Linear(2 * patches, patches))
        self.over_channels = nn.Sequential(
            nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.over_patches(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.over_channels(self.norms[1](x))


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches, self.out = nn.Conv2d(3, 384, 16, 16), nn.Linear(384, 100)
        self.blocks = nn.Sequential(*(Mix(196, 384) for _ in range(8)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


def waves() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Conv1d(1, 128, 16, 8), *(Gate(128, 2**n) for n in range(10))), torch.randn(16, 1, 16_384)


def mixer() -> tuple[nn.Module, torch.Tensor]:
    return Mixer(), torch.randn(32, 3, 224, 224)
