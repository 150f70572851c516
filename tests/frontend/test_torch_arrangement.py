"""PyTorch's operators that move values, and overloads that no module exports, give what PyTorch computes."""

from __future__ import annotations

from typing import Any

import pytest
from torch_programs import check, check_apart, check_each, operators, random

torch = pytest.importorskip("torch")
nn = torch.nn
F = nn.functional

IMAGES = random(2, 4, 9, 8)


def assigned(x: Any) -> Any:
    """Assignments to parts, which change no input."""
    y = x.clone()
    y[:, 0] = 0
    y[:, 1:3] = x[:, 0:2]
    y[:, :, -1] = 1.5
    return y


def test_shapes() -> None:
    check_each(
        {
            "view": lambda x: x.view(2, -1),
            "flatten": lambda x: (x.flatten(1), x.flatten()),
            "permute": lambda x: (x.permute(0, 2, 3, 1).contiguous(), x.transpose(1, 2), x.movedim(1, -1)),
            "unsqueeze": lambda x: x.unsqueeze(-1).unsqueeze(1),
            "squeeze": lambda x: (x[:, :1].squeeze(1), x[:1, :1].squeeze(), x.squeeze(1), x[:1, :1].squeeze((0, 1))),
            "unflatten": lambda x: x.unflatten(1, (2, 2)),
            "chunk": lambda x: x.chunk(3, 2),
            "split": lambda x: (x.split(3, 3), x.split([1, 3], 1)),
            "unbind": lambda x: x.unbind(1),
            "concatenate": lambda x: (torch.cat([x, x * 2], 1), torch.hstack([x, x])),
            "stack": lambda x: torch.stack([x, -x], 2),
            "select": lambda x: x[:, 1] + x.select(1, -1),
            "slice": lambda x: (x[:, 1:3, ::2, -3:], x[:, :, :-1], x[..., 0], x[:, None], x.narrow(1, 1, 2)),
            "constant indices": lambda x: (x[:, torch.tensor([2, -1])], x[:, :, torch.tensor([[0, 1], [3, -1]])]),
            "index_select": lambda x: x.index_select(1, torch.tensor([2, 0, 1])),
            "flip": lambda x: x.flip(2, 3),
            "repeat": lambda x: (x.repeat(1, 2, 1, 3), x.repeat(2, 1, 1, 1, 1), x.tile(1, 1, 2)),
            "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
            "roll": lambda x: (x.roll(2, 3), x.roll((1, -2), (1, 2))),
            "expand": lambda x: x[:, :1].expand(-1, 3, -1, -1),
            "assign": assigned,
            "shuffle": lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x[:, :, :8], 2)),
            "identity": lambda x: (x, x.clone().detach()),
            "without gradients": torch.no_grad()(lambda x: x + 1),
        },
        IMAGES,
    )


def test_constants() -> None:
    check_each(
        {
            "arange": lambda x: x + torch.arange(8) + torch.arange(0, 4, 0.5),
            "full": lambda x: x + torch.full((8,), 2.0) + torch.zeros_like(x) + torch.ones(8) + x.new_full((1,), 3.0),
            "grid": lambda x: x + torch.meshgrid(torch.arange(9), torch.arange(8), indexing="ij")[0],
            "eye": lambda x: x + torch.eye(9, 8) + torch.tril(torch.ones(9, 8)),
            "linspace": lambda x: x + torch.linspace(0, 1, 8),
        },
        IMAGES,
    )


def test_borders() -> None:
    check_each(
        {
            "constant": lambda x: F.pad(x, (1, 2, 0, 1), value=0.5),
            "negative": lambda x: F.pad(x, (-1, 2, 0, -1)),
            "reflect": lambda x: F.pad(x, (1, 2, 3, 0), mode="reflect"),
            "replicate": lambda x: F.pad(x, (1, 2, 3, 0), mode="replicate"),
            "circular": lambda x: F.pad(x, (1, 2, 3, 0), mode="circular"),
            "zero": nn.ZeroPad2d(1),
        },
        IMAGES,
    )


def test_interpolation() -> None:
    def resized(mode: str, **options: Any) -> Any:
        return lambda x: F.interpolate(x, mode=mode, **options)

    check_each(
        {
            "whole": resized("nearest", scale_factor=2),
            "whole of each axis": resized("nearest", scale_factor=(2, 3)),
            "broken": resized("nearest", scale_factor=1.5),
            "broken, of the sizes": resized("nearest", scale_factor=1.7, recompute_scale_factor=True),
            "sizes": resized("nearest", size=(13, 5)),
            "exact": resized("nearest-exact", size=(13, 5)),
            "exact, broken": resized("nearest-exact", scale_factor=1.5),
            "bilinear": resized("bilinear", scale_factor=2),
            "bilinear, sizes": resized("bilinear", size=(5, 13)),
            "bilinear, corners": resized("bilinear", scale_factor=2, align_corners=True),
        },
        IMAGES,
    )
    assert operators(check(resized("nearest", scale_factor=2), IMAGES)) == ["UpSampling"]
    smooth = {
        f"{mode} {options}": resized(mode, antialias=antialias, **options)
        for mode, antialias in (("bicubic", False), ("bicubic", True), ("bilinear", True))
        for options in (
            {"scale_factor": 1.7},
            {"size": (5, 13)},
            {"size": (4, 3), "align_corners": True},
            {"scale_factor": 0.6, "recompute_scale_factor": True},
        )
    }
    check_each(smooth, IMAGES)
    assert operators(check(resized("bicubic", size=(5, 13)), IMAGES)).count("FullyConnected") == 2


def test_interpolation_of_other_ranks() -> None:
    def exact(x: Any) -> Any:
        return F.interpolate(x, scale_factor=1.5, mode="nearest-exact")

    check_apart(
        {
            "one": (
                lambda x: (
                    exact(x),
                    F.interpolate(x, scale_factor=2),
                    F.interpolate(x, scale_factor=1.7, mode="linear"),
                ),
                random(1, 2, 5),
            ),
            "three": (
                lambda x: (
                    exact(x),
                    F.interpolate(x, scale_factor=(1, 2, 1.5)),
                    F.interpolate(x, scale_factor=1.5, mode="trilinear"),
                ),
                random(1, 2, 3, 4, 5),
            ),
        }
    )


def test_embedding() -> None:
    rows = torch.tensor([[1, 2, 0], [9, 3, 3]])
    check_each({"table": nn.Embedding(10, 4, padding_idx=0), "computed": lambda n: random(10, 3)[n]}, rows)
    check(lambda x, n: (x[n], x.index_select(1, n)), random(5, 3), torch.tensor([0, 2]))


def test_recurrent_layers_are_taken_apart() -> None:
    layers = {"lstm": nn.LSTM(4, 3, batch_first=True), "gru": nn.GRU(4, 3, batch_first=True)}
    layers |= {"plain": nn.RNN(4, 3, nonlinearity="relu"), "projected": nn.LSTM(4, 3, proj_size=2, bidirectional=True)}
    check_each(layers, random(2, 4, 4))


def test_overloads_that_modules_do_not_export() -> None:
    aten = torch.ops.aten
    check_each(
        {
            "scalars": lambda x: (aten.add.Scalar(x, 2, 3), aten.sub.Scalar(x, 2, 3), aten.mul.Scalar(x, 2)),
            "quotients": lambda x: (aten.div.Scalar(x, 3), aten.div.Scalar_mode(x, 0.7, rounding_mode="floor")),
            "comparisons": lambda x: aten.le.Tensor(x, x.flip(1)) * 1.0 + aten.ne.Scalar(x, 0),
            "bits": lambda x: aten.bitwise_xor.Tensor(x > 0, x < 1) * x,
            "power of a tensor": lambda x: aten.pow.Tensor_Tensor(x.abs(), torch.tensor(2.5)),
            "alias": lambda x: aten.alias.default(x) + aten.detach.default(x),
            "layers": lambda x: aten.native_layer_norm.default(x, [8], None, None, 1e-5)[0],
            "groups": lambda x: aten.native_group_norm.default(x, None, None, 2, 4, 72, 2, 1e-5)[0],
            "softmax": lambda x: (aten._softmax.default(x, 1, False), aten._log_softmax.default(x, 1, False)),
            "pooling": lambda x: aten._adaptive_avg_pool2d.default(x, [3, 2]),
            "pooling of three": lambda x: aten._adaptive_avg_pool3d.default(x, [2, 3, 2]),
            "nearest": lambda x: aten.upsample_nearest2d.default(x, [13, 5]),
            "nearest exact": lambda x: aten._upsample_nearest_exact2d.default(x, [13, 5]),
            "nearest by scales": lambda x: aten.upsample_nearest2d.default(x, [13, 12], 1.5, 1.5),
            "nearest of one": lambda x: aten.upsample_nearest1d.default(x[0], [13]),
            "nearest exact of one": lambda x: aten._upsample_nearest_exact1d.default(x[0], [13]),
            "nearest of three": lambda x: aten.upsample_nearest3d.default(x[None], [5, 13, 8]),
            "nearest exact of three": lambda x: aten._upsample_nearest_exact3d.default(x[None], [5, 13, 8]),
        },
        IMAGES,
    )
