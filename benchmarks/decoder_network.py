"""A decoder of the LLaMA family as one step of PyTorch: a token and its place in, the scores of the next token out."""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

ROTARY_BASE, EPSILON, FORBIDDEN = 10_000, 1e-5, -1e9


@dataclass(frozen=True)
class Sizes:
    """Of a decoder. heads, key_heads: of attention, and how many keys and values there are for them. context: places
    that the caches have."""

    dim: int
    hidden: int
    layers: int
    heads: int
    key_heads: int
    vocabulary: int
    context: int

    @property
    def head(self) -> int:
        return self.dim // self.heads


class Layer(nn.Module):  # type: ignore[misc]
    """Attention over what is in the caches, and a gated MLP, each behind an RMSNorm and added to what comes in."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        dim, hidden, kept = sizes.dim, sizes.hidden, sizes.key_heads * sizes.head
        self.attention_norm, self.mlp_norm = (nn.RMSNorm(dim, eps=EPSILON) for _ in range(2))
        self.q, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(dim, kept, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(dim, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, dim, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, sizes.context, sizes.key_heads, sizes.head))

    def forward(self, x: Tensor, place: Tensor, cosines: Tensor, sines: Tensor, seen: Tensor) -> Tensor:
        sizes, h = self.sizes, self.attention_norm(x)
        q = rotated(self.q(h).view(1, sizes.heads, -1, 2), cosines, sines).view(1, sizes.key_heads, -1, sizes.head)
        k = rotated(self.k(h).view(1, sizes.key_heads, -1, 2), cosines, sines)
        self.keys[:, place] = k[:, None]
        self.values[:, place] = self.v(h).view(1, 1, sizes.key_heads, -1)
        scores = q @ self.keys.permute(0, 2, 3, 1) / sizes.head**0.5
        shares = scores.masked_fill(~seen, FORBIDDEN).softmax(-1)
        x = x + self.o((shares @ self.values.permute(0, 2, 1, 3)).reshape(1, -1))
        h = self.mlp_norm(x)
        return x + self.down(nn.functional.silu(self.gate(h)) * self.up(h))


def rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Pairs of neighbours, turned by an angle each."""
    first, second = x[..., 0], x[..., 1]
    return torch.stack([first * cosines - second * sines, first * sines + second * cosines], -1).flatten(-2)


class Decoder(nn.Module):  # type: ignore[misc]
    """From a token (1,) and its place (1,) to scores (1, vocabulary); caches of keys and values are its buffers."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        angles = np.arange(sizes.context)[:, None] / ROTARY_BASE ** (np.arange(0, sizes.head, 2) / sizes.head)
        self.register_buffer("cosines", torch.tensor(np.cos(angles), dtype=torch.float32))
        self.register_buffer("sines", torch.tensor(np.sin(angles), dtype=torch.float32))
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.dim)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.dim, eps=EPSILON)
        self.classifier = nn.Linear(sizes.dim, sizes.vocabulary, bias=False)

    def forward(self, token: Tensor, place: Tensor) -> Tensor:
        x = self.embedding(token)
        turns = self.cosines[place][:, None], self.sines[place][:, None]
        seen = torch.arange(len(self.cosines)) <= place
        for layer in self.layers:
            x = layer(x, place, *turns, seen)
        return self.classifier(self.norm(x))


def drawn(sizes: Sizes, seed: int = 0) -> Decoder:
    """A decoder whose weights are drawn so that every layer keeps the scale of what it takes."""
    torch.manual_seed(seed)
    made = Decoder(sizes).eval()
    with torch.no_grad():
        for weight in made.parameters():
            if weight.dim() == 2:
                weight.normal_(0, weight.shape[1] ** -0.5)
    return made


def read_llama2_c(path: Path, context: int) -> Decoder:
    """A trained decoder in the format of llama2.c, with caches of `context` places; its classifier is its embedding.

    Seven int32 (the fields of `Sizes`), then float32: the embedding, of all layers each kind of weight in turn, the
    last norm, and cosines and sines of all places.
    """
    content = path.read_bytes()
    told = Sizes(*struct.unpack(f"{len(fields(Sizes))}i", content[:28]))
    sizes = Sizes(told.dim, told.hidden, told.layers, told.heads, told.key_heads, told.vocabulary, context)
    made, values, at = Decoder(sizes).eval(), np.frombuffer(content, np.float32, offset=28), 0

    def take(*targets: Tensor) -> None:
        nonlocal at
        for target in targets:
            target.copy_(torch.tensor(values[at : at + target.numel()].reshape(target.shape)))
            at += target.numel()

    with torch.no_grad():
        take(made.embedding.weight)
        for name in ("attention_norm", "q", "k", "v", "o", "mlp_norm", "gate", "down", "up"):
            take(*(getattr(layer, name).weight for layer in made.layers))
        take(made.norm.weight)
        made.classifier.weight.copy_(made.embedding.weight)
        for table in (made.cosines, made.sines):
            take(table)
            at += (told.context - context) * table.shape[1]
    return made
