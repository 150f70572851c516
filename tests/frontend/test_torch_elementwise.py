"""PyTorch's elementwise operators and reductions, exported and read, give what PyTorch computes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from torch_programs import check, check_each, export, random, randomized

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
    waves = ["sin", "cos", "sinh", "cosh", "atan", "asinh"]
    check_each({name: getattr(torch, name) for name in [*names, *waves, "sign", "frac"]}, IMAGES)
    finite = ["isnan", "isinf", "isfinite", "nan_to_num"]
    check_each({name: lambda x, f=name: getattr(torch, f)(x) * 1.0 for name in finite}, IMAGES)
    narrow = ["tan", "asin", "acos", "atanh"]
    check_each({name: getattr(torch, name) for name in narrow}, random(2, 3, 4).tanh() * 0.9)


def test_functions_of_positive_numbers() -> None:
    powers = {f"power {exponent}": lambda x, e=exponent: x**e for exponent in (2, 3, 0.5, -0.5, -1, 2.5)}
    names = ["log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal"]
    powers["acosh"] = lambda x: torch.acosh(x + 1)
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
            "remainder": lambda x, y: torch.remainder(x, -0.7) + torch.fmod(x, 0.6) + x // 0.8,
            "remainder by channel": lambda x, y: torch.remainder(x, torch.linspace(-0.9, 0.7, x.shape[-1])),
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
