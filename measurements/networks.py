"""Networks of other kinds: recurrent, on graphs, in the spectrum, with forces, with a selective state.

opcost profile docs/examples/networks.py:lstm --allow-code
"""

from __future__ import annotations

import torch
from torch import nn


class Recurrent(nn.Module):
    """A language model of recurrent layers."""

    def __init__(self, layer: type[nn.RNNBase], words: int = 10_000, width: int = 512) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = layer(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.layers(self.embedding(tokens))
        return self.head(hidden)


def lstm() -> tuple[nn.Module, torch.Tensor]:
    return Recurrent(nn.LSTM), torch.randint(10_000, (32, 128))


def gru() -> tuple[nn.Module, torch.Tensor]:
    return Recurrent(nn.GRU), torch.randint(10_000, (32, 128))


class Graph(nn.Module):
    """Message passing: gathers the features of each edge's source, and adds them up at its target."""

    def __init__(self, width: int = 128, rounds: int = 3) -> None:
        super().__init__()
        self.messages = nn.ModuleList(nn.Linear(width, width) for _ in range(rounds))
        self.updates = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(rounds))

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges
        for message, update in zip(self.messages, self.updates, strict=True):
            sent = torch.relu(message(nodes)).index_select(0, source)
            received = torch.zeros_like(nodes).index_add_(0, target, sent)
            nodes = nodes + torch.relu(update(torch.cat([nodes, received], dim=-1)))
        return nodes


def graph() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return Graph(), (torch.randn(20_000, 128), torch.randint(20_000, (2, 200_000)))


class Spectral(nn.Module):
    """A Fourier neural operator: convolutions of the lowest frequencies."""

    def __init__(self, width: int = 32, modes: int = 16, layers: int = 4) -> None:
        super().__init__()
        self.modes = modes
        shape = (width, width, modes, modes)
        weights = (torch.randn(shape, dtype=torch.complex64) / width for _ in range(layers))
        self.weights = nn.ParameterList(map(nn.Parameter, weights))
        self.local = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(layers))
        self.lift, self.project = nn.Conv2d(3, width, 1), nn.Conv2d(width, 1, 1)

    def forward(self, field: torch.Tensor) -> torch.Tensor:
        field, low = self.lift(field), slice(0, self.modes)
        for weight, local in zip(self.weights, self.local, strict=True):
            spectrum = torch.fft.rfft2(field)
            mixed = torch.zeros_like(spectrum)
            mixed[:, :, low, low] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, low, low], weight)
            field = nn.functional.gelu(torch.fft.irfft2(mixed, s=field.shape[-2:]) + local(field))
        return self.project(field)


def spectral() -> tuple[nn.Module, torch.Tensor]:
    return Spectral(), torch.randn(32, 3, 128, 128)


class Forces(nn.Module):
    """The energy of atoms from all of their distances, and its gradient."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.energy = nn.Sequential(
            nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)
        )

    def forward(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.enable_grad():
            positions = positions.detach().requires_grad_()
            offsets = positions.unsqueeze(1) - positions.unsqueeze(2)
            squares = offsets.square().sum(dim=-1, keepdim=True)
            energy = self.energy(torch.exp(-squares)).sum(dim=(1, 2, 3))
            (gradient,) = torch.autograd.grad(energy.sum(), positions)
        return energy.detach(), -gradient


def forces() -> tuple[nn.Module, torch.Tensor]:
    return Forces(), torch.randn(16, 64, 3)


class SelectiveState(nn.Module):
    """A block of Mamba: each channel has a state, whose decay, input and output depend on the token.

    The scan is a loop over the tokens, as in the slow path of the reference implementation.
    """

    def __init__(self, width: int, state: int, kernel: int = 4) -> None:
        super().__init__()
        inner, rank = 2 * width, width // 16
        self.sizes = (rank, state, state)
        self.norm = nn.RMSNorm(width)
        self.enter, self.leave = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)
        self.mix = nn.Conv1d(inner, inner, kernel, groups=inner, padding=kernel - 1)
        self.select, self.step = nn.Linear(inner, sum(self.sizes), bias=False), nn.Linear(rank, inner)
        self.log_decay = nn.Parameter(torch.arange(1.0, state + 1).log().repeat(inner, 1))
        self.skip = nn.Parameter(torch.ones(inner))

    def scan(self, x: torch.Tensor) -> torch.Tensor:
        rank, b, c = self.select(x).split(self.sizes, dim=-1)
        dt = nn.functional.softplus(self.step(rank))
        decays = torch.exp(dt.unsqueeze(-1) * -torch.exp(self.log_decay))
        inputs = (dt * x).unsqueeze(-1) * b.unsqueeze(2)
        h, outputs = torch.zeros_like(inputs[:, 0]), []
        for token in range(x.shape[1]):
            h = decays[:, token] * h + inputs[:, token]
            outputs.append((h @ c[:, token].unsqueeze(-1)).squeeze(-1))
        return torch.stack(outputs, dim=1) + self.skip * x

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x, gate = self.enter(self.norm(tokens)).chunk(2, dim=-1)
        mixed = self.mix(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        y = self.scan(nn.functional.silu(mixed)) * nn.functional.silu(gate)
        return tokens + self.leave(y)


def mamba() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(SelectiveState(512, 16), SelectiveState(512, 16), nn.RMSNorm(512)), torch.randn(8, 64, 512)
