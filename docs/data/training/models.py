"""A U-Net of one's own, whose training step is measured."""

import torch
from torch import nn

WIDTHS = (64, 128, 256)


def double(channels: int, wider: int) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(channels, wider, 3, padding=1, bias=False), nn.BatchNorm2d(wider), nn.ReLU()),
        *(nn.Conv2d(wider, wider, 3, padding=1, bias=False), nn.BatchNorm2d(wider), nn.ReLU()),
    )


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        first, second, third = WIDTHS
        self.down = nn.ModuleList((double(3, first), double(first, second), double(second, third)))
        self.narrower = nn.ModuleList(
            (nn.ConvTranspose2d(third, second, 2, 2), nn.ConvTranspose2d(second, first, 2, 2))
        )
        self.up = nn.ModuleList((double(2 * second, second), double(2 * first, first)))
        self.pool, self.last = nn.MaxPool2d(2), nn.Conv2d(first, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = [self.down[0](x)]
        for down in list(self.down)[1:]:
            found.append(down(self.pool(found[-1])))
        x = found.pop()
        for narrower, up in zip(self.narrower, self.up, strict=True):
            x = up(torch.cat([narrower(x), found.pop()], 1))
        return self.last(x)


def unet() -> tuple[nn.Module, torch.Tensor]:
    return UNet(), torch.randn(16, 3, 128, 128)
