"""Three small networks of one's own, held back from predictions: a U-Net, an encoder of text, and one with a GRU."""

import torch
from torch import nn


def block(inputs: int, outputs: int) -> nn.Sequential:
    layers = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = block(3, 32), block(32, 64), block(64, 128)
        self.up2, self.up1 = nn.ConvTranspose2d(128, 64, 2, 2), nn.ConvTranspose2d(64, 32, 2, 2)
        self.join2, self.join1, self.out = block(128, 64), block(64, 32), nn.Conv2d(32, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.down1(x)
        two = self.down2(nn.functional.max_pool2d(one, 2))
        three = self.middle(nn.functional.max_pool2d(two, 2))
        two = self.join2(torch.cat([self.up2(three), two], 1))
        return self.out(self.join1(torch.cat([self.up1(two), one], 1)))


class GruEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.gru = nn.Embedding(8000, 256), nn.GRU(256, 256, batch_first=True, bidirectional=True)
        self.norm, self.out = nn.LayerNorm(512), nn.Linear(512, 8000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(self.out(self.norm(self.gru(self.words(x))[0])), -1)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True, norm_first=True)
        self.words, self.layers = nn.Embedding(8000, 384), nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(self.words(x)).mean(1)


def unet() -> tuple[nn.Module, torch.Tensor]:
    return UNet(), torch.randn(8, 3, 256, 256)


def gru_encoder() -> tuple[nn.Module, torch.Tensor]:
    return GruEncoder(), torch.randint(0, 8000, (16, 128))


def encoder() -> tuple[nn.Module, torch.Tensor]:
    return Encoder(), torch.randint(0, 8000, (16, 256))
