"""Every operator of PyTorch that is covered, exported, read and evaluated, gives what PyTorch computes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from torch_programs import check, check_apart, check_each, export, operators, random, randomized

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.torch import from_torch

torch = pytest.importorskip("torch")
nn = torch.nn
F = nn.functional

IMAGES = random(2, 4, 9, 8)


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


def test_convolutions() -> None:
    """Each is one operator, which has the bias."""
    graph = check_apart({name: (module, random(*shape)) for name, (module, shape) in CONVOLUTIONS.items()})
    windows: Any = [symbol.operator for symbol in graph.operators if "nvolution" in symbol.op]
    assert [window.no_bias for window in windows] == [module.bias is None for module, _ in CONVOLUTIONS.values()]


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


def test_normalization_of_other_ranks() -> None:
    check_apart(
        {
            "batch of rows": (randomized(nn.BatchNorm1d(4)), random(3, 4)),
            "batch of one dimension": (randomized(nn.BatchNorm1d(4)), random(3, 4, 5)),
            "batch of three": (randomized(nn.BatchNorm3d(4)), random(1, 4, 3, 3, 3)),
            "instance of one": (randomized(nn.InstanceNorm1d(4, affine=True)), random(2, 4, 5)),
            "slopes of rows": (randomized(nn.PReLU(5)), random(2, 5)),
        }
    )


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


# Refusals


def test_operators_are_refused_all_at_once() -> None:
    def body(x: Any) -> Any:
        return x.kthvalue(1, keepdim=True)[0] + torch.special.bessel_j0(x) + torch.special.bessel_j0(x + 1), x.mode(1)[
            0
        ]

    with pytest.raises(UnsupportedOperatorError) as error:
        from_torch(export(body, random(2, 5)))
    assert str(error.value) == (
        "the program uses 3 operators not covered: aten.special_bessel_j0.default ×2 (special_bessel_j0, "
        "special_bessel_j0_1); aten.kthvalue.default ×1 (kthvalue); aten.mode.default ×1 (mode); "
        "replace them before exporting, or cut the model before them"
    )


def test_uses_are_refused_all_at_once() -> None:
    def body(x: Any) -> Any:
        pooled = F.adaptive_max_pool2d(x, 5)
        return pooled + 1, F.max_pool2d(x, 2, return_indices=True)[1], torch.cdist(x, x, 3.0)

    with pytest.raises(UnsupportedOperatorError) as error:
        from_torch(export(body, IMAGES))
    assert re.sub(r"; (?=\w+ \()", "\n", str(error.value)).splitlines() == [
        "adaptive_max_pool2d (adaptive_max_pool2d.default): argument output_size is (5, 5) on (9, 8); "
        "a divisor of each size is needed",
        "max_pool2d_with_indices (max_pool2d_with_indices.default): output 1 is used; "
        "a node of which only 1 are used is needed",
        "cdist (cdist.default): argument p is 3.0; 1, 2 or inf is needed",
    ]


def test_what_an_operator_is_taken_apart_into_is_told() -> None:
    with pytest.raises(
        UnsupportedOperatorError,
        match=r"std \(std.dim\), taken apart into \w+ \(var.correction\): the number of elements",
    ):
        from_torch(export(lambda x: x[:, :1].std(1), IMAGES))


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
