"""Networks of one's own, held back from sums in state.

Gated convolutions of sound, and a mixer of patches; a denoiser of images, and a tagger of words; a network that divides
images into classes by convolutions with holes, and one that recommends by products of embeddings.
"""

from itertools import pairwise

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


class Residual(nn.Module):
    def __init__(self, channels: int, wider: int) -> None:
        super().__init__()
        self.skip = nn.Conv2d(channels, wider, 1) if channels != wider else nn.Identity()
        self.layers = nn.Sequential(
            *(nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, wider, 3, padding=1)),
            *(nn.GroupNorm(8, wider), nn.SiLU(), nn.Conv2d(wider, wider, 3, padding=1)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.skip(x) + self.layers(x)


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = (48, 96, 192)
        self.first, self.last = nn.Conv2d(3, widths[0], 3, padding=1), nn.Conv2d(widths[0], 3, 3, padding=1)
        self.down = nn.ModuleList(Residual(one, one) for one in widths)
        self.wider = nn.ModuleList(nn.Conv2d(one, two, 2, 2) for one, two in pairwise(widths))
        self.narrower = nn.ModuleList(nn.ConvTranspose2d(two, one, 2, 2) for one, two in pairwise(widths))
        self.up = nn.ModuleList(Residual(2 * one, one) for one in widths[:-1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = [self.down[0](self.first(x))]
        for wider, down in zip(self.wider, list(self.down)[1:], strict=True):
            found.append(down(wider(found[-1])))
        x = found.pop()
        for narrower, up in zip(reversed(self.narrower), reversed(self.up), strict=True):
            x = up(torch.cat([narrower(x), found.pop()], 1))
        return self.last(x)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20_000, 256)
        self.near = nn.ModuleList(nn.Conv1d(256, 256, one, padding=one // 2) for one in (1, 3, 5))
        self.layers = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(768, 12, 1536, batch_first=True, norm_first=True), 3, enable_nested_tensor=False
        )
        self.tags = nn.Linear(768, 40)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words).transpose(1, 2)
        x = torch.cat([torch.relu(one(x)) for one in self.near], 1).transpose(1, 2)
        return torch.log_softmax(self.tags(self.layers(x)), -1)


def denoiser() -> tuple[nn.Module, torch.Tensor]:
    return Denoiser(), torch.randn(8, 3, 128, 128)


def tagger() -> tuple[nn.Module, torch.Tensor]:
    return Tagger(), torch.randint(20_000, (32, 128))


def _layer(channels: int, wider: int, width: int = 3, hole: int = 1, **others: int) -> nn.Sequential:
    padding = hole * (width // 2)
    convolution = nn.Conv2d(channels, wider, width, padding=padding, dilation=hole, bias=False, **others)
    return nn.Sequential(convolution, nn.BatchNorm2d(wider), nn.Hardswish())


class Segmenter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Sequential(_layer(3, 32, stride=2), _layer(32, 64, stride=2), _layer(64, 64))
        self.coarse = nn.Sequential(
            *(_layer(64, 192, stride=2), _layer(192, 192, 5, groups=192), _layer(192, 256, 1)),
            *(_layer(256, 256, hole=2), _layer(256, 256, hole=4)),
        )
        self.holes = nn.ModuleList(_layer(256, 64, hole=hole) for hole in (1, 6, 12))
        self.pooled, self.out = _layer(256, 64, 1), nn.Conv2d(4 * 64 + 64, 21, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fine = self.fine(x)
        coarse = self.coarse(fine)
        whole = self.pooled(coarse.mean((2, 3), keepdim=True)).expand(-1, -1, *coarse.shape[2:])
        found = torch.cat([*(one(coarse) for one in self.holes), whole], 1)
        found = nn.functional.interpolate(found, fine.shape[2:], mode="bilinear")
        return nn.functional.interpolate(self.out(torch.cat([found, fine], 1)), x.shape[2:], mode="bilinear")


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(50_000, 64) for _ in range(16))
        self.numbers = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU())
        self.out = nn.Sequential(
            nn.Linear(64 + 17 * 17, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )

    def forward(self, numbers: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        found = [self.numbers(numbers), *(table(one) for table, one in zip(self.tables, kinds.unbind(1), strict=True))]
        vectors = torch.stack(found, 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        return torch.sigmoid(self.out(torch.cat([found[0], products], 1)))


def segmenter() -> tuple[nn.Module, torch.Tensor]:
    return Segmenter(), torch.randn(8, 3, 320, 320)


def recommender() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    return Recommender(), (torch.randn(4096, 13), torch.randint(50_000, (4096, 16)))
