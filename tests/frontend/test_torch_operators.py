"""Every operator of PyTorch that is covered, exported, read and evaluated, gives what PyTorch computes."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from torch_programs import Function, check, check_each, export, operators, random, randomized

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.torch import from_torch

torch = pytest.importorskip("torch")
nn = torch.nn
F = nn.functional

IMAGES = random(2, 4, 9, 8)


# Elementwise


def test_activations() -> None:
    check_each(
        {
            "relu": F.relu,
            "relu6": F.relu6,
            "hardtanh": lambda x: F.hardtanh(x, -0.5, 2.0),
            "hardswish": F.hardswish,
            "hardsigmoid": F.hardsigmoid,
            "gelu": F.gelu,
            "gelu of tanh": lambda x: F.gelu(x, approximate="tanh"),
            "silu": F.silu,
            "mish": F.mish,
            "elu": F.elu,
            "elu alpha": lambda x: F.elu(x, 0.7),
            "celu": lambda x: F.celu(x, 1.5),
            "selu": F.selu,
            "softplus": F.softplus,
            "softplus beta": lambda x: F.softplus(x, 2.0),
            "softplus threshold": lambda x: F.softplus(x, 2.0, 3.0),
            "softsign": F.softsign,
            "leaky_relu": lambda x: F.leaky_relu(x, 0.3),
            "logsigmoid": F.logsigmoid,
            "tanhshrink": F.tanhshrink,
            "softshrink": F.softshrink,
            "hardshrink": F.hardshrink,
            "threshold": lambda x: F.threshold(x, 0.3, -1.0),
            "glu": lambda x: F.glu(x, 1),
            "prelu": nn.PReLU(),
            "prelu of channels": randomized(nn.PReLU(4)),
            "dropout": nn.Dropout(0.5),
            "in place": lambda x: F.relu_(x + 1).add_(3).mul_(2),
        },
        IMAGES,
    )


def test_functions() -> None:
    names = ["sigmoid", "tanh", "abs", "neg", "exp", "expm1", "erf", "square", "floor", "ceil", "trunc", "round"]
    check_each({name: getattr(torch, name) for name in [*names, "sign", "frac"]}, IMAGES)


def test_functions_of_positive_numbers() -> None:
    powers = {f"power {exponent}": lambda x, e=exponent: x**e for exponent in (2, 3, 0.5, -0.5, -1, 2.5)}
    names = ["log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal"]
    check_each(powers | {name: getattr(torch, name) for name in names}, random(2, 3, 4).abs() + 0.1)


def test_arithmetic() -> None:
    check_each(
        {
            "add": lambda x, y: torch.add(x, y, alpha=2.5),
            "sub": lambda x, y: torch.sub(x, y, alpha=3),
            "rsub": lambda x, y: torch.rsub(x, y, alpha=2) + (1.5 - x),
            "mul": lambda x, y: x * y * 0.5,
            "div": lambda x, y: x / (y.abs() + 1) / 3,
            "number over": lambda x, y: 2 / (x.abs() + 1),
            "floor": lambda x, y: torch.div(x, 0.7, rounding_mode="floor"),
            "trunc": lambda x, y: torch.div(x, 0.7, rounding_mode="trunc"),
            "broadcast": lambda x, y: x[:, :1] * y[0, :, :1] + y[0, 0],
            "maximum": lambda x, y: torch.maximum(x, y) + torch.minimum(x, y * 2),
            "maximum of a constant": lambda x, y: torch.maximum(x, torch.tensor(0.5)),
            "clamp": lambda x, y: (x.clamp(-1, 1), x.clamp(min=0), x.clamp(max=0.5), x.clamp(2, -2)),
            "clamp to tensors": lambda x, y: torch.clamp(x, min=y, max=y + 1),
            "clamp_min": lambda x, y: torch.clamp_min(x, 0.2) + torch.clamp_max(x, 0.1),
            "lerp": lambda x, y: torch.lerp(x, y, 0.3),
            "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
        },
        random(2, 3, 4),
        random(2, 3, 4, seed=1),
    )


def test_integers_meet_floats() -> None:
    check_each(
        {
            "number": lambda x, n: n * 0.5,
            "tensor": lambda x, n: x + n * 2.5,
            "quotient": lambda x, n: n / 4,
            "sum": lambda x, n: n.sum(),
            "equal": lambda x, n: (n == 2).float(),
            "one_hot": lambda x, n: F.one_hot(n, 5),
        },
        random(2, 4),
        torch.arange(4),
    )


def test_comparisons_and_logic() -> None:
    check_each(
        {
            "where": lambda x, y: torch.where(x > y, x, y),
            "numbers": lambda x, y: torch.where(x <= 0.5, 1.0, 0.0),
            "equal": lambda x, y: (x == x.round()).float() + (x.round() == y.round()),
            "others": lambda x, y: (x >= y).float() + (x != y).to(torch.int32) + (x < y),
            "bits": lambda x, y: torch.where((x > 0) & (y < 0) | ~(x < y), x, -y),
            "and": lambda x, y: torch.logical_and(x > 0, y > 0).float(),
            "or": lambda x, y: torch.logical_or(x > 0, y > 0) * x,
            "not": lambda x, y: torch.logical_not(x > 0) * x,
            "xor": lambda x, y: torch.logical_xor(x > 0, y > 0) * x,
            "masked_fill": lambda x, y: x.masked_fill(x > 1, -7.0),
            "bool": lambda x, y: x.round().bool() * y,
        },
        random(2, 3, 4),
        random(2, 3, 4, seed=1),
    )


def test_a_mask_as_an_input() -> None:
    mask = random(2, 3, 4, seed=1) > 0
    check(lambda x, m: (torch.where(m, x, 0.0), x.masked_fill(m, 1.0) + m), random(2, 3, 4), mask)


def test_every_float_is_float32() -> None:
    graph = from_torch(export(lambda x: (x.half() * 2).double() + 1, random(2, 3).double()))
    assert {symbol.dtype for symbol in graph.symbols} == {"float32"}
    np.testing.assert_allclose(graph.evaluate({graph.inputs[0].name: np.full((2, 3), 1.5)})[0], 4)


def test_a_network_of_half_precision() -> None:
    model, x = nn.Linear(4, 3).half(), random(2, 4)
    found = from_torch(export(model, x.half())).evaluate({"input": x.half().float().numpy()})[0]
    np.testing.assert_allclose(found, model.float()(x.half().float()).detach().numpy(), rtol=1e-6, atol=1e-6)


# Reductions


def test_reductions() -> None:
    check_each(
        {
            "sum": lambda x: x.sum(1),
            "sum of all": lambda x: x.sum(),
            "sum kept": lambda x: x.sum((1, 2), keepdim=True),
            "sum of truths": lambda x: (x > 0).sum(1),
            "mean": lambda x: x.mean((2, 3)),
            "mean of all": lambda x: x.mean(),
            "mean kept": lambda x: x.mean(-1, keepdim=True),
            "amax": lambda x: x.amax((2, 3)),
            "amax of all": lambda x: x.amax(),
            "amin kept": lambda x: x.amin(1, keepdim=True),
            "max of all": lambda x: x.max() + x.min(),
            "max": lambda x: x.max(1),
            "min kept": lambda x: x.min(-1, keepdim=True),
            "argmax": lambda x: x.argmax(1),
            "argmax of all": lambda x: x.argmax(),
            "argmin kept": lambda x: x.argmin(-1, keepdim=True),
            "var": lambda x: x.var(1),
            "var of a population": lambda x: x.var((2, 3), unbiased=False, keepdim=True),
            "var_mean": lambda x: torch.var_mean(x, 1),
            "std": lambda x: x.std(-1),
            "std of all": lambda x: x.std(),
            "prod": lambda x: (x.prod(1), x[0, 0, :, 1:2].prod()),
            "logsumexp": lambda x: torch.logsumexp(x, 1),
            "norm": lambda x: x.norm(dim=1),
            "norm 1": lambda x: torch.linalg.vector_norm(x, 1, dim=2),
            "norm inf": lambda x: torch.linalg.vector_norm(x, math.inf),
            "normalize": lambda x: F.normalize(x, dim=1),
            "cumsum": lambda x: x.cumsum(1) + x.cumsum(-1),
        },
        IMAGES,
    )


# Matrix products


def test_matrix_products() -> None:
    weight = random(8, 6, seed=3)
    parts = {
        "constant right": lambda x, y: x @ weight,
        "constant left": lambda x, y: weight.T @ y,
        "constant vector": lambda x, y: x @ weight[:, 0],
        "linear": lambda x, y: F.linear(x, weight.T, weight[0]),
        "linear of a vector": lambda x, y: F.linear(x[0, 0], weight.T),
        "bmm": torch.bmm,
        "baddbmm": lambda x, y: torch.baddbmm(x[:, :, :3], x, y, beta=0.5, alpha=2),
        "addmm": lambda x, y: torch.addmm(x[0, 0, :6], x[0], weight, beta=2, alpha=0.5),
        "mm": lambda x, y: torch.mm(x[0], y[0]),
        "mv": lambda x, y: torch.mv(x[0], y[0, :, 0]),
        "dot": lambda x, y: torch.dot(x[0, 0], y[0, :, 0]),
        "broadcast": lambda x, y: x.reshape(2, 1, 5, 8) @ y[0],
        "einsum": lambda x, y: torch.einsum("bij,bjk->bik", x, y) + torch.einsum("bij,jk->bik", x, y[0]),
        "outer": lambda x, y: torch.outer(x[0, 0], y[0, 0]),
    }
    check_each(parts, random(2, 5, 8), random(2, 8, 3, seed=1))


def test_a_linear_layer_is_one_fully_connected() -> None:
    assert operators(check(nn.Linear(8, 5), random(2, 8))) == ["FullyConnected"]
    assert operators(check(nn.Linear(8, 5, bias=False), random(2, 3, 8))) == ["FullyConnected"]


# Windows


CONVOLUTIONS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "stride, pad, dilation": (nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)), (2, 4, 9, 8)),
    "groups": (nn.Conv2d(4, 8, 3, groups=2, bias=False), (2, 4, 9, 8)),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4, padding=1), (2, 4, 9, 8)),
    "pad as long as the data": (nn.Conv2d(4, 6, 4, padding="same"), (2, 4, 9, 8)),
    "reflected border": (nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), (2, 4, 9, 8)),
    "circular border": (nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), (2, 4, 9, 8)),
    "without batch": (nn.Conv2d(4, 6, 3), (4, 9, 8)),
    "one dimension": (nn.Conv1d(4, 6, 3, padding=2, stride=2), (2, 4, 9)),
    "three dimensions": (nn.Conv3d(2, 3, (2, 3, 2), stride=(1, 2, 1), padding=1), (1, 2, 5, 6, 5)),
    "transposed": (nn.ConvTranspose2d(4, 6, (3, 4), stride=2, padding=1, groups=2, dilation=(1, 2)), (2, 4, 9, 8)),
    "transposed 1": (nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1), (2, 4, 5)),
    "transposed 3": (nn.ConvTranspose3d(2, 3, 2, stride=2, bias=False), (1, 2, 3, 3, 3)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name: str) -> None:
    module, shape = CONVOLUTIONS[name]
    graph = check(module, random(*shape))
    windows = [symbol.operator for symbol in graph.operators if "nvolution" in symbol.op]
    assert len(windows) == 1
    assert windows[0].no_bias == (module.bias is None)  # type: ignore[attr-defined]


def test_pooling() -> None:
    check_each(
        {
            "max": lambda x: F.max_pool2d(x, 2),
            "max, border": lambda x: F.max_pool2d(x, 3, 2, 1),
            "max, ceil": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
            "max, a window in the border left out": lambda x: F.max_pool2d(x, 2, 3, 1, ceil_mode=True),
            "max, dilated": lambda x: F.max_pool2d(x, 2, (1, 2), (1, 0), dilation=(3, 2), ceil_mode=True),
            "max without batch": lambda x: F.max_pool2d(x[0], 2),
            "average": lambda x: F.avg_pool2d(x, 2),
            "average, border": lambda x: F.avg_pool2d(x, 3, 2, 1),
            "average, border not counted": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            "average, ceil": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
            "average, ceil, not counted": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            "average, ceil, uneven": lambda x: F.avg_pool2d(x, (2, 3), 3, (1, 0), ceil_mode=True),
            "average, divisor": lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=5),
            "average, divisor, ceil": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=5),
            "average without batch": lambda x: F.avg_pool2d(x[0], 2),
            "power": lambda x: F.lp_pool2d(x.abs() + 0.1, 2, 2),
            "adaptive to one": lambda x: F.adaptive_avg_pool2d(x, 1),
            "adaptive to divisors": lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
            "adaptive to others": lambda x: F.adaptive_avg_pool2d(x, (5, 3)),
            "adaptive of one axis": lambda x: F.adaptive_avg_pool2d(x, (None, 4)),
            "adaptive without batch": lambda x: F.adaptive_avg_pool2d(x[0], 1),
            "adaptive max": lambda x: (F.adaptive_max_pool2d(x, 1), F.adaptive_max_pool2d(x, (3, 2))),
            "local response": nn.LocalResponseNorm(3),
        },
        IMAGES,
    )


def test_pooling_of_one_dimension() -> None:
    check_each(
        {
            "max": lambda x: F.max_pool1d(x, 3, 2, 1, ceil_mode=True),
            "average": lambda x: F.avg_pool1d(x, 3, 2, 1, ceil_mode=True),
            "adaptive": lambda x: (F.adaptive_avg_pool1d(x, 3), F.adaptive_avg_pool1d(x, 1)),
            "adaptive max": lambda x: F.adaptive_max_pool1d(x, 2),
        },
        random(2, 3, 8),
    )


def test_pooling_of_three_dimensions() -> None:
    check_each(
        {
            "max": lambda x: F.max_pool3d(x, 2),
            "average": lambda x: F.avg_pool3d(x, 2, ceil_mode=True),
            "adaptive": lambda x: (F.adaptive_avg_pool3d(x, 1), F.adaptive_avg_pool3d(x, (3, 4, 4))),
            "adaptive max": lambda x: F.adaptive_max_pool3d(x, (1, 2, 3)),
            "max of two outputs": lambda x: F.max_pool3d(x, 2, return_indices=True)[0],
        },
        random(1, 2, 5, 4, 6),
    )


# Normalisation


def test_normalization() -> None:
    statistics = nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
    check_each(
        {
            "batch": randomized(nn.BatchNorm2d(4)),
            "batch, no scale": randomized(nn.BatchNorm2d(4, affine=False, eps=1e-3)),
            "layer": randomized(nn.LayerNorm(8)),
            "layer of two axes": randomized(nn.LayerNorm((9, 8))),
            "layer, no scale": nn.LayerNorm(8, elementwise_affine=False),
            "layer, no shift": randomized(nn.LayerNorm(8, bias=False)),
            "group": randomized(nn.GroupNorm(2, 4)),
            "group, no scale": nn.GroupNorm(4, 4, affine=False),
            "instance": randomized(nn.InstanceNorm2d(4, affine=True)),
            "instance, no scale": nn.InstanceNorm2d(4),
            "instance by statistics": randomized(statistics),
            "root mean square": randomized(nn.RMSNorm(8)),
            "root mean square of two axes": nn.RMSNorm((9, 8), eps=1e-3, elementwise_affine=False),
            "softmax": lambda x: F.softmax(x, 1),
            "log_softmax": lambda x: F.log_softmax(x, -1),
            "softmin": lambda x: F.softmin(x, 1),
        },
        IMAGES,
    )


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.BatchNorm1d(4), (3, 4)),
        (nn.BatchNorm1d(4), (3, 4, 5)),
        (nn.BatchNorm3d(4), (1, 4, 3, 3, 3)),
        (nn.InstanceNorm1d(4, affine=True), (2, 4, 5)),
        (nn.PReLU(5), (2, 5)),
    ],
)
def test_normalization_of_other_ranks(module: Any, shape: tuple[int, ...]) -> None:
    check(randomized(module), random(*shape))


# Attention


def test_attention() -> None:
    mask = random(5, 6, seed=3)
    allowed = (mask > 0) | torch.eye(5, 6, dtype=torch.bool)
    attend = F.scaled_dot_product_attention
    check_each(
        {
            "plain": attend,
            "causal": lambda q, k, v: attend(q, k, v, is_causal=True),
            "scale": lambda q, k, v: attend(q, k, v, scale=0.3),
            "added mask": lambda q, k, v: attend(q, k, v, mask),
            "mask of truths": lambda q, k, v: attend(q, k, v, allowed),
            "computed mask": lambda q, k, v: attend(q, k, v, (q @ k.mT).abs() >= 0),
            "shared heads": lambda q, k, v: attend(torch.cat([q, -q], 1), k, v, enable_gqa=True),
            "three axes": lambda q, k, v: attend(q[0], k[0], v[0]),
            "two axes": lambda q, k, v: attend(q[0, 0], k[0, 0], v[0, 0]),
        },
        random(2, 2, 5, 4),
        random(2, 2, 6, 4, seed=1),
        random(2, 2, 6, 3, seed=2),
    )


def test_transformer_layers() -> None:
    first, last = nn.MultiheadAttention(8, 2, batch_first=True), nn.MultiheadAttention(8, 2)
    check_each(
        {
            "attention": lambda x: first(x, x, x, need_weights=False)[0],
            "attention with weights": lambda x: last(x, x, x),
            "encoder": nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True),
            "encoder of gelu": nn.TransformerEncoderLayer(8, 2, 16, activation="gelu"),
        },
        random(2, 5, 8),
    )
    check(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), random(2, 5, 8), random(2, 4, 8, seed=1))


# Arrangement


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


def test_interpolation_of_other_ranks() -> None:
    check(
        lambda x: (F.interpolate(x, scale_factor=2), F.interpolate(x, scale_factor=1.7, mode="linear")), random(1, 2, 5)
    )
    check(
        lambda x: (F.interpolate(x, scale_factor=(1, 2, 1.5)), F.interpolate(x, scale_factor=1.5, mode="trilinear")),
        random(1, 2, 3, 4, 5),
    )
    exact = Function(lambda x: F.interpolate(x, scale_factor=1.5, mode="nearest-exact"))
    check(exact, random(1, 2, 5))
    check(exact, random(1, 2, 3, 4, 5))


def test_embedding() -> None:
    rows = torch.tensor([[1, 2, 0], [9, 3, 3]])
    check_each({"table": nn.Embedding(10, 4, padding_idx=0), "computed": lambda n: random(10, 3)[n]}, rows)
    check(lambda x, n: (x[n], x.index_select(1, n)), random(5, 3), torch.tensor([0, 2]))


def test_recurrent_layers_are_taken_apart() -> None:
    check_each({"lstm": nn.LSTM(4, 3, batch_first=True), "gru": nn.GRU(4, 3, batch_first=True)}, random(2, 4, 4))


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


# Refusals


def test_operators_are_refused_all_at_once() -> None:
    def body(x: Any) -> Any:
        return x.sort(1)[0] + torch.special.bessel_j0(x) + torch.special.bessel_j0(x + 1), x.topk(2)[0]

    with pytest.raises(UnsupportedOperatorError) as error:
        from_torch(export(body, random(2, 5)))
    assert str(error.value) == (
        "the program uses 3 operators not covered: aten.special_bessel_j0.default ×2 (special_bessel_j0, "
        "special_bessel_j0_1); aten.sort.default ×1 (sort); aten.topk.default ×1 (topk); "
        "replace them before exporting, or cut the model before them"
    )


def test_uses_are_refused_all_at_once() -> None:
    def body(x: Any) -> Any:
        pooled = F.adaptive_max_pool2d(x, 5)
        return pooled + 1, F.max_pool2d(x, 2, return_indices=True)[1], torch.norm(x, 3)

    with pytest.raises(UnsupportedOperatorError) as error:
        from_torch(export(body, IMAGES))
    assert re.sub(r"; (?=\w+ \()", "\n", str(error.value)).splitlines() == [
        "adaptive_max_pool2d (adaptive_max_pool2d.default): argument output_size is (5, 5) on (9, 8); "
        "a divisor of each size is needed",
        "max_pool2d_with_indices (max_pool2d_with_indices.default): output 1 is used; "
        "a node of which only 1 are used is needed",
        "linalg_vector_norm (linalg_vector_norm.default): argument ord is 3.0; 1, 2 or inf is needed",
    ]


def test_what_an_operator_is_taken_apart_into_is_told() -> None:
    with pytest.raises(
        UnsupportedOperatorError,
        match=r"upsample_bicubic2d \(upsample_bicubic2d.vec\), taken apart into index \(index.Tensor\): argument",
    ):
        from_torch(export(lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), IMAGES))


@pytest.mark.parametrize(
    "body",
    [
        lambda x: x[:, :1] + torch.ones(2**25),
        lambda x: x[:, :1] + torch.arange(2**25),
        lambda x: F.interpolate(x[None], size=2**25),
        lambda x: x.expand(2, 2**13).cumsum(1),
    ],
)
def test_constants_that_no_network_has_are_refused(body: Any) -> None:
    with pytest.raises(GraphError, match="at most 16777216 elements are allowed"):
        from_torch(export(body, random(2, 1)))


def test_operators_of_other_libraries_are_not_taken_for_those_of_pytorch() -> None:
    library = torch.library.Library("mrt_test", "DEF")
    library.define("relu(Tensor x) -> Tensor")
    library.impl("relu", lambda x: x + 1, "CompositeExplicitAutograd")
    with pytest.raises(UnsupportedOperatorError, match="1 operator not covered: mrt_test.relu.default"):
        from_torch(export(lambda x: torch.ops.mrt_test.relu(x), random(2, 3)))
