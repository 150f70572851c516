"""Every OpenVINO operator that is read, against OpenVINO itself in float32."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np
import pytest

openvino = pytest.importorskip("openvino")
from openvino import opset1, opset4, opset6, opset8, opset15  # noqa: E402
from openvino import opset13 as ops  # noqa: E402
from openvino_cases import (  # noqa: E402
    QUERY_KEY_VALUE,
    SHAPE,
    const,
    halves,
    interpolated,
    of,
    of_two,
    positive,
    positive_const,
    refused,
    truths,
)
from openvino_models import Case, answers, check_all, ints  # noqa: E402

from mrt.errors import GraphError, UnsupportedOperatorError  # noqa: E402
from mrt.frontend.openvino import from_openvino, reader  # noqa: E402
from mrt.frontend.openvino.node import covered_operators  # noqa: E402


def floats(x: Any) -> Any:
    return ops.convert(x, "f32")


FUNCTIONS = {
    **{"Abs": ops.absolute, "Ceiling": ops.ceiling, "Erf": ops.erf, "Exp": ops.exp, "Floor": ops.floor},
    **{"HSigmoid": ops.hsigmoid, "HSwish": ops.hswish, "Mish": ops.mish, "Negative": ops.negative, "Relu": ops.relu},
    **{"Sin": ops.sin, "Cos": ops.cos, "Sinh": ops.sinh, "Cosh": ops.cosh},
    **{"Atan": ops.atan, "Asinh": ops.asinh},
    **{"Sigmoid": ops.sigmoid, "Sign": ops.sign, "SoftPlus": ops.softplus, "SoftSign": ops.softsign, "Tanh": ops.tanh},
}
COMPARISONS = {
    **{"Equal": ops.equal, "NotEqual": ops.not_equal, "Greater": ops.greater, "GreaterEqual": ops.greater_equal},
    **{"Less": ops.less, "LessEqual": ops.less_equal},
}
REDUCTIONS = {
    **{"ReduceSum": ops.reduce_sum, "ReduceMean": ops.reduce_mean, "ReduceMax": ops.reduce_max},
    **{"ReduceMin": ops.reduce_min, "ReduceL1": opset4.reduce_l1, "ReduceL2": opset4.reduce_l2},
    "ReduceProd": ops.reduce_prod,
}

CASES: dict[str, list[Case]] = {
    **{name: [of(make)] for name, make in FUNCTIONS.items()},
    **{
        name: [of(lambda x, make=make: make(ops.tanh(x)))]
        for name, make in {"Tan": ops.tan, "Asin": ops.asin, "Acos": ops.acos}.items()
    },
    "IsNaN": [of(lambda x: floats(ops.is_nan(x)))],
    "IsInf": [of(lambda x: floats(ops.is_inf(x)))],
    "Mod": [of(lambda x: ops.mod(x, ops.constant(np.float32(0.7))))],
    "FloorMod": [
        of(lambda x: ops.floor_mod(x, ops.constant(np.float32(-0.7)))),
        of(lambda x: ops.floor_mod(x, positive_const(4, 1))),
    ],
    "Acosh": [of(lambda x: ops.acosh(ops.exp(ops.absolute(x))))],
    "Atanh": [of(lambda x: ops.atanh(ops.sin(ops.tanh(x))))],
    **{name: [of(make, draw=positive)] for name, make in {"Log": ops.log, "Sqrt": ops.sqrt}.items()},
    **{
        name: [of(lambda x, y, make=make: floats(make(ops.round(x, "half_to_even"), ops.round(y, "half_to_even"))),
                    (SHAPE, (4, 1)))]
        for name, make in COMPARISONS.items()
    },
    **{
        name: [
            of(lambda x, make=make: make(x, ints(-1, 1), False)),
            of(lambda x, make=make: make(x, ints(2), True)),
            of(lambda x, make=make: make(x, ints(0, 1, 2, 3), False)),
        ]
        for name, make in REDUCTIONS.items()
    },
    "Add": [of_two(ops.add), of_two(ops.add, SHAPE, SHAPE), of(lambda x: ops.add(x, const(3, 1, 1)))],
    "Subtract": [of_two(ops.subtract), of(lambda x: ops.subtract(ops.constant(np.float32(2)), x))],
    "Multiply": [of_two(ops.multiply), of(lambda x: ops.multiply(x, const(1)))],
    "Divide": [of_two(ops.divide), of(lambda x: ops.divide(x, ops.constant(np.float32(3))))],
    "Maximum": [of_two(ops.maximum), of(lambda x: ops.maximum(x, ops.constant(np.float32(0.5))))],
    "Minimum": [of_two(ops.minimum)],
    "SquaredDifference": [of_two(ops.squared_difference)],
    "Power": [
        of(lambda x, e=e: ops.power(x, ops.constant(np.float32(e))), draw=positive)
        for e in (2, 0.5, -1, 3, 1)
    ],
    "LogicalAnd": [of(lambda x, y: floats(ops.logical_and(truths(x), truths(y))), (SHAPE, SHAPE))],
    "LogicalOr": [of(lambda x, y: floats(ops.logical_or(truths(x), truths(y))), (SHAPE, SHAPE))],
    "LogicalXor": [of(lambda x, y: floats(ops.logical_xor(truths(x), truths(y))), (SHAPE, SHAPE))],
    "LogicalNot": [of(lambda x: floats(ops.logical_not(truths(x))))],
    "Select": [of(lambda x, y: ops.select(truths(x), x, y), (SHAPE, SHAPE))],
    "Convert": [of(lambda x: ops.convert(ops.convert(ops.multiply(x, const(1)), "i32"), "f32"))],
    "ConvertLike": [of(lambda x: ops.convert_like(x, ops.constant(np.float16(1))), tolerance=1e-2)],
    "Clamp": [of(lambda x: ops.clamp(x, -0.5, 1.0)), of(lambda x: ops.clamp(x, 0.0, 6.0))],
    "Elu": [of(lambda x: ops.elu(x, 0.7))],
    "Gelu": [of(lambda x, mode=mode: ops.gelu(x, mode)) for mode in ("erf", "tanh")],
    "HardSigmoid": [of(lambda x: ops.hard_sigmoid(x, ops.constant(np.float32(0.3)), ops.constant(np.float32(0.4))))],
    "Round": [
        of(lambda x, mode=mode: ops.round(ops.multiply(x, ops.constant(np.float32(0.5))), mode),
             draw=halves)
        for mode in ("half_to_even", "half_away_from_zero")
    ],
    "Swish": [of(lambda x: ops.swish(x)), of(lambda x: ops.swish(x, ops.constant(np.float32(1.5))))],
    "PRelu": [of(lambda x, s=s: ops.prelu(x, const(*s))) for s in [(1,), (3,), (1, 3, 1, 1), (3, 4, 5)]],
    "Softmax": [of(lambda x, make=make: make(x, 2)) for make in (ops.softmax, opset8.softmax, opset1.softmax)],
    "LogSoftmax": [of(lambda x: ops.log_softmax(x, -1))],
    "BatchNormInference": [
        of(lambda x: ops.batch_norm_inference(x, const(3), const(3), const(3), positive_const(3), 1e-3)),
        of(lambda x: opset1.batch_norm_inference(x, const(3), const(3), const(3), positive_const(3), 1e-3)),
    ],
    "ScaledDotProductAttention": [
        of(lambda q, k, v: ops.scaled_dot_product_attention(q, k, v), QUERY_KEY_VALUE),
        of(lambda q, k, v: ops.scaled_dot_product_attention(q, k, v, causal=True), QUERY_KEY_VALUE),
        of(lambda q, k, v: ops.scaled_dot_product_attention(q, k, v, scale=np.float32(0.7)), QUERY_KEY_VALUE),
        of(lambda q, k, v: ops.scaled_dot_product_attention(q, k, v, const(4, 6)), QUERY_KEY_VALUE),
        of(lambda q, k, v, m: ops.scaled_dot_product_attention(q, k, v, m), (*QUERY_KEY_VALUE, (2, 1, 4, 6))),
        of(lambda q, k, v, m: ops.scaled_dot_product_attention(q, k, v, ops.greater(m, ops.constant(np.float32(-2)))),
           (*QUERY_KEY_VALUE, (2, 1, 4, 6))),
        of(lambda q, k, v: ops.scaled_dot_product_attention(
            q, k, v, ops.constant(np.tril(np.ones((4, 6), bool), 2))), QUERY_KEY_VALUE),
    ],
    "MVN": [
        of(lambda x: opset6.mvn(x, ints(2, 3), True, 1e-3, "inside_sqrt")),
        of(lambda x: opset6.mvn(x, ints(-1), True, 1e-3, "INSIDE_SQRT")),
        of(lambda x: opset6.mvn(x, ints(1, 2, 3), False, 1e-3, "inside_sqrt")),
    ],
    "NormalizeL2": [of(lambda x: ops.normalize_l2(x, ints(1), 1e-3, "add"))],
    "LRN": [of(lambda x: ops.lrn(x, ints(1), 0.5, 0.75, 1.0, 3), ((1, 6, 4, 4),))],
    "MatMul": [
        *(
            of(lambda x, a=a, b=b: ops.matmul(x, const(*((5, 4) if b else (4, 5))), a, b), ((4, 3) if a else (3, 4),))
            for a, b in product((False, True), repeat=2)
        ),
        of(lambda x: ops.matmul(x, const(5, 6), False, False)),
        of(lambda x: ops.matmul(x, const(1, 1, 6, 5), False, True)),
        of(lambda x: ops.matmul(x, const(5), False, False)),
        of(lambda x: ops.matmul(x, const(5), False, True)),
        of(lambda x: ops.matmul(const(6, 4), x, False, False)),
        of(lambda x, y: ops.matmul(x, y, True, True), ((2, 3, 4, 5), (3, 6, 4))),
        of(lambda x, y: ops.matmul(x, y, False, False), ((4, 5), (5, 3))),
    ],
    "Einsum": [of(lambda x, y: ops.einsum([x, y], "abcd,de->abce"), (SHAPE, (5, 2)))],
    "Reshape": [
        of(lambda x: ops.reshape(x, ints(0, 12, -1), True)),
        of(lambda x: ops.reshape(x, ints(6, 20), False)),
    ],
    "Squeeze": [
        of(lambda x: ops.squeeze(x, ints(1, -1)), ((2, 1, 3, 1),)),
        of(lambda x: opset15.squeeze(x), ((2, 1, 3),)),
    ],
    "Unsqueeze": [of(lambda x: ops.unsqueeze(x, ints(0, -1, 2)), ((2, 3),))],
    "Transpose": [of(lambda x: ops.transpose(x, ints(0, 3, 1, 2)))],
    "Concat": [of(lambda x, y: ops.concat([x, y, x], -3), (SHAPE, (2, 1, 4, 5)))],
    "Broadcast": [
        of(lambda x: ops.broadcast(x, ints(2, 3, 4)), ((3, 1),)),
        of(lambda x: ops.broadcast(x, ints(1, 4), broadcast_spec="BIDIRECTIONAL"), ((2, 3, 1),)),
    ],
    "Tile": [of(lambda x: ops.tile(x, ints(1, 2, 1, 3)))],
    "DepthToSpace": [
        of(lambda x, mode=mode: ops.depth_to_space(x, mode, 2), ((1, 8, 2, 3),))
        for mode in ("blocks_first", "depth_first")
    ],
    "SpaceToDepth": [of(lambda x: ops.space_to_depth(x, "blocks_first", 2), ((1, 2, 4, 6),))],
    "StridedSlice": [
        of(lambda x: ops.strided_slice(x, ints(0, 1, 0, 0), ints(0, 3, 0, -1), ints(1, 1, 1, 2),
                                       [1, 0, 1, 1], [1, 0, 1, 0])),
        of(lambda x: ops.strided_slice(x, ints(1, 0, 2), ints(2, 0, 3), ints(1, 1, 1), [0] * 3, [0] * 3,
                                         shrink_axis_mask=[1, 0, 1], ellipsis_mask=[0, 1, 0])),
        of(lambda x: ops.strided_slice(x, ints(0, 0, 5), ints(0, 9, 0), ints(1, 1, -2), [1, 0, 1], [1, 0, 1],
                                         new_axis_mask=[1, 0, 0])),
    ],
    "Slice": [
        of(lambda x: ops.slice(x, ints(1, -3), ints(9, -1), ints(1, 1), ints(1, 3))),
        of(lambda x: ops.slice(x, ints(-1), ints(-9), ints(-2), ints(2))),
        of(lambda x: ops.slice(x, ints(0, 1), ints(2, 2), ints(1, 1))),
    ],
    "Split": [of(lambda x: ops.split(x, ops.constant(np.int64(-1)), 2), ((2, 3, 4),))],
    "VariadicSplit": [of(lambda x: ops.variadic_split(x, ops.constant(np.int64(1)), ints(2, -1, 1)), ((2, 7, 3),))],
    "Gather": [
        of(lambda x: ops.gather(x, ints(2, -1, 0), ops.constant(np.int64(1)))),
        of(lambda x: ops.gather(x, ops.constant(np.int64(1)), ops.constant(np.int64(-1)))),
    ],
    "Pad": [
        of(lambda x: ops.pad(x, ints(0, 0, 1, 0), ints(0, 1, 0, 2), "constant", ops.constant(np.float32(1.5)))),
        *(of(lambda x, mode=mode: ops.pad(x, ints(0, 0, 1, 2), ints(0, 0, 0, 1), mode))
          for mode in ("edge", "reflect", "symmetric")),
        of(lambda x: ops.pad(x, ints(0, 0, -1, 2), ints(0, -1, 1, 0), "constant", ops.constant(np.float32(0)))),
    ],
    "FakeQuantize": [
        of(lambda x: ops.fake_quantize(x, *(ops.constant(np.float32(v)) for v in (-1, 1.5, -2, 3)), 8)),
        of(lambda x: ops.fake_quantize(x, const(1, 3, 1, 1), ops.constant(np.full((1, 3, 1, 1), 3, np.float32)),
                                         const(1, 3, 1, 1), ops.constant(np.full((1, 3, 1, 1), -2, np.float32)), 256)),
    ],
}  # fmt: skip
"""Of every operator without windows; those have tests of every combination below."""

WINDOWS = {
    *("Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData"),
    *("MaxPool", "AvgPool", "Interpolate"),
}


def test_every_operator_has_a_case() -> None:
    assert reader.read_graph.__doc__  # imported, so that all are registered
    assert set(CASES) | WINDOWS == covered_operators()


@cache
def answered() -> dict[str, list[tuple[list[np.ndarray], list[np.ndarray]]]]:
    found = iter(answers([case for cases in CASES.values() for case in cases]))
    return {name: [next(found) for _ in cases] for name, cases in CASES.items()}


@pytest.mark.parametrize("operator", sorted(CASES))
def test_an_operator(operator: str) -> None:
    for case, answer in zip(CASES[operator], answered()[operator], strict=True):
        case.check(*answer)


# What depends on constants and shapes


def test_shapes_are_computed() -> None:
    """ShapeOf, and what is made of it, is a constant; the batch is what was asked for."""

    def build(x: Any) -> Any:
        sizes = ops.shape_of(x)
        rows = ops.gather(sizes, ints(0), ops.constant(np.int64(0)))
        rest = ops.reduce_prod(ops.gather(sizes, ints(1, 2, 3), ops.constant(np.int64(0))), ints(0), True)
        return ops.reshape(ops.relu(x), ops.concat([rows, rest], 0), False)

    model = of(build, ((-1, 3, 4, 5),)).model()
    graph = from_openvino(model, batch=6)
    assert graph.inputs[0].shape == (6, 3, 4, 5)
    assert graph.outputs[0].shape == (6, 60)
    assert model.inputs[0].partial_shape[0].is_dynamic  # the model that was given is as it was


def test_constants_of_every_type() -> None:
    """Floats of 16 bits and integers of 4 hold what OpenVINO says that they do."""

    def build(kind: str, x: Any) -> Any:
        value = ops.constant(np.array([1, 3, 2]), dtype=getattr(openvino.Type, kind))
        return ops.multiply(x, ops.convert(value, "f32"))

    kinds = ("f16", "bf16", "f64", "i4", "u4", "i8", "u8", "i32", "i64")
    check_all([of(partial(build, kind), ((2, 3),)) for kind in kinds])


def test_operators_that_are_not_covered_are_listed_at_once() -> None:
    def build(x: Any) -> Any:
        one = ops.constant(np.float32(1))
        return ops.add(ops.selu(ops.selu(x, one, one), one, one), floats(ops.is_finite(x)))

    assert refused(build, SHAPE).startswith("the model uses 2 operators not covered: Selu (opset1) ×2 (")


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda x: ops.max_pool(x, [2, 2], [1, 1], [0, 0], [0, 0], [2, 2]), "output 1 is used"),
        (lambda x: ops.space_to_depth(x, "depth_first", 2), "attribute mode is depth_first"),
        (lambda x: opset6.mvn(x, ints(1), True, 1e-3, "inside_sqrt"), r"the axes is \(1,\)"),
        (lambda x: opset6.mvn(x, ints(3), True, 1e-3, "outside_sqrt"), "attribute eps_mode is outside_sqrt"),
        (interpolated(mode="nearest", sizes=(3, 3), pads_begin=[0, 0, 1, 0], pads_end=[0, 0, 0, 0]), "pads_begin"),
        (lambda x: ops.power(x, x), "input exponent is computed"),
    ],
)
def test_uses_that_are_not_covered(build: Callable[..., Any], words: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=words):
        from_openvino(of(build, ((1, 4, 4, 4),)).model())


def test_a_dynamic_size_is_refused() -> None:
    assert "input x0 has the dynamic axis 2" in refused(ops.relu, (-1, 3, -1, 4), error=GraphError)


def test_a_shape_that_depends_on_the_data_is_refused() -> None:
    def build(x: Any) -> Any:
        return ops.reshape(x, ops.convert(ops.reduce_max(x, ints(0), False), "i64"), False)

    assert "input shape is computed from the data; a constant is needed" in refused(build, (1, 4))
