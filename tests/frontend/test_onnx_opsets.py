"""Every ONNX operator that is read, in every opset of 9 to 28 that changed its definition, as ONNX Runtime has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import make_model, run_onnxruntime, run_reference, single

from mrt.frontend.onnx import from_onnx
from mrt.frontend.onnx.node import covered_operators
from mrt.frontend.onnx.reader import OPSETS

RNG = np.random.default_rng(21)
SHAPE = (2, 4, 4, 6)
Example = Callable[[int], onnx.ModelProto]
"""From an opset to a model of one node of that opset."""


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return (RNG.random(shape) + 0.5).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def versions(op_type: str) -> list[int]:
    """The opsets from 9 on in which the operator's definition is new; 9 itself where it is older."""
    schemas = [
        s for s in onnx.defs.get_all_schemas_with_history() if (s.domain, s.name) == ("", op_type) and not s.deprecated
    ]
    return sorted({max(s.since_version, OPSETS[0]) for s in schemas if s.since_version in range(OPSETS[-1] + 1)})


def of(op_type: str, *constants: np.ndarray, shape: tuple[int, ...] = SHAPE, **attributes: object) -> Example:
    """The operator on the input and constants after it, alike in every opset."""
    named = {f"c{place}": np.asarray(value) for place, value in enumerate(constants)}
    return lambda opset: single(op_type, shape, named, opset, **attributes)


def of_several(op_type: str, *shapes: tuple[int, ...], kind: int = TensorProto.FLOAT, to: int = 0) -> Example:
    """The operator on inputs alone, which are of one type; `to` is that of its result if it is another."""
    inputs = {f"x{place}": shape for place, shape in enumerate(shapes)}
    kinds = {**dict.fromkeys(inputs, kind), "y": to or kind}
    return lambda opset: make_model([helper.make_node(op_type, list(inputs), ["y"])], inputs, opset=opset, dtypes=kinds)


def with_axes(op_type: str, input_since: int, *axes: int, shape: tuple[int, ...] = SHAPE) -> Example:
    """An operator whose axes are an attribute before an opset and an input from then on."""

    def make(opset: int) -> onnx.ModelProto:
        if opset < input_since:
            return single(op_type, shape, opset=opset, axes=axes)
        return single(op_type, shape, {"axes": ints(*axes)}, opset)

    return make


def typed(model: onnx.ModelProto, kind: int) -> onnx.ModelProto:
    model.graph.output[0].type.tensor_type.elem_type = kind
    return model


def clip(opset: int) -> onnx.ModelProto:
    if opset < 11:
        return single("Clip", SHAPE, opset=opset, min=-0.5, max=0.75)
    return single("Clip", SHAPE, {"lo": np.float32(-0.5), "hi": np.float32(0.75)}, opset)


def dropout(opset: int) -> onnx.ModelProto:
    if opset < 12:
        return single("Dropout", SHAPE, opset=opset, ratio=0.25)
    return single("Dropout", SHAPE, {"ratio": np.float32(0.25)}, opset)


def slice_(opset: int) -> onnx.ModelProto:
    if opset < 10:
        return single("Slice", SHAPE, opset=opset, starts=[1, -3], ends=[3, 9], axes=[1, 3])
    constants = {"s": ints(1, -1), "e": ints(3, -5), "a": ints(1, 3), "t": ints(1, -2)}
    return single("Slice", SHAPE, constants, opset)


def pad(opset: int) -> onnx.ModelProto:
    if opset < 11:
        return single("Pad", SHAPE, opset=opset, pads=[0, 0, 1, 2, 0, 1, 0, 0], value=0.5)
    constants = {"p": ints(0, 0, 1, 2, 0, 1, 0, 0), "v": np.float32(0.5)}
    if opset >= 18:
        constants = {"p": ints(1, 2, 0, 1), "v": np.float32(0.5), "a": ints(2, -1)}
    return single("Pad", SHAPE, constants, opset)


def split(opset: int) -> onnx.ModelProto:
    constants = {"s": ints(1, 3)} if opset >= 13 else {}
    attributes = {"split": [1, 3]} if opset < 13 else {}
    node = helper.make_node("Split", ["x", *constants], ["y", "z"], axis=1, **attributes)
    return make_model([node], {"x": SHAPE}, ["y", "z"], constants, opset)


def top_k(opset: int) -> onnx.ModelProto:
    constants, attributes = ({"k": ints(3)}, {}) if opset >= 10 else ({}, {"k": 3})
    node = helper.make_node("TopK", ["x", *constants], ["y", "z"], axis=1, **attributes)
    dtypes = {"z": TensorProto.INT64}
    return make_model([node], {"x": SHAPE}, ["y", "z"], constants, opset, dtypes)


def resize(opset: int) -> onnx.ModelProto:
    scales = {"scales": np.array([1, 1, 2, 1.5], np.float32)}
    if opset < 11:
        return single("Resize", SHAPE, scales, opset, mode="linear")
    roi = {"roi": np.zeros(0, np.float32)} if opset < 13 else {}
    names = ["x", "roi" if roi else "", "scales"]
    attributes = {"axes": [2, 3], "antialias": 1} if opset >= 18 else {}
    if attributes:
        scales = {"scales": np.array([2, 0.5], np.float32)}
    return single("Resize", SHAPE, roi | scales, opset, names, mode="linear", **attributes)


def group_normalization(opset: int) -> onnx.ModelProto:
    entries = 4 if opset >= 21 else 2
    return single("GroupNormalization", SHAPE, {"s": positive(entries), "b": normal(entries)}, opset, num_groups=2)


def gelu(opset: int) -> onnx.ModelProto:
    return single("Gelu", SHAPE, opset=opset, approximate="tanh")


def like_input(op_type: str, **attributes: object) -> Example:
    """What is known of a tensor, added to it."""

    def make(opset: int) -> onnx.ModelProto:
        nodes = [
            helper.make_node(op_type, ["x"], ["known"], **attributes),
            helper.make_node("Cast", ["known"], ["f"], to=1),
            helper.make_node("Add", ["x", "f"], ["y"]),
        ]
        return make_model(nodes, {"x": (2, 2)}, opset=opset)

    return make


def constant(opset: int) -> onnx.ModelProto:
    attributes = {"value_floats": [1.0, 2.0]} if opset >= 12 else {}
    tensor = {} if attributes else {"value": helper.make_tensor("v", 1, [2], [1.0, 2.0])}
    nodes = [
        helper.make_node("Constant", [], ["c"], **attributes, **tensor),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    return make_model(nodes, {"x": (3, 2)}, opset=opset)


def of_kind(example: Example, kind: int) -> Example:
    return lambda opset: typed(example(opset), kind)


def narrow(op_type: str) -> Example:
    """Of data between -1 and 1, or, for Acosh, of 1 and more."""

    def make(opset: int) -> onnx.ModelProto:
        inner = ["Exp", "Abs"] if op_type == "Acosh" else ["Softsign"]
        names = ["x", "a", "b"][: len(inner) + 1]
        nodes = [helper.make_node(op, [names[i]], [names[i + 1]]) for i, op in enumerate(reversed(inner))]
        return make_model([*nodes, helper.make_node(op_type, [names[-1]], ["y"])], {"x": SHAPE}, opset=opset)

    return make


def one_hot(opset: int) -> onnx.ModelProto:
    node = helper.make_node("OneHot", ["x", "d", "v"], ["y"], axis=1)
    constants = {"d": ints(5), "v": np.array([0.5, 2], np.float32)}
    return make_model([node], {"x": (2, 3)}, ["y"], constants, opset, {"x": TensorProto.INT64})


def reduction_since(op_type: str) -> int:
    return 13 if op_type == "ReduceSum" else 18


UNARY = """
    Abs Ceil Celu Cos Elu Erf Exp Floor HardSigmoid HardSwish Hardmax Identity LeakyRelu LogSoftmax Mish Neg Relu Round
    Selu Shrink Sigmoid Sign Softmax Softplus Softsign Tanh ThresholdedRelu GlobalAveragePool GlobalLpPool GlobalMaxPool
    LpNormalization MeanVarianceNormalization Flatten Transpose Sin Atan Asinh Sinh Cosh
"""
POSITIVE = ("Log", "Reciprocal", "Sqrt")
REDUCTIONS = [f"Reduce{kind}" for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum")]
BOOL = TensorProto.BOOL

EXAMPLES: dict[str, Example] = {
    **{op_type: of(op_type) for op_type in (*UNARY.split(), *POSITIVE)},
    **{op_type: narrow(op_type) for op_type in ("Acos", "Acosh", "Asin", "Atanh", "Tan")},
    **{name: with_axes(name, reduction_since(name), 1, 3) for name in (*REDUCTIONS, "ReduceSumSquare")},
    **{name: of_several(name, SHAPE, (4, 1), (6,)) for name in ("Max", "Mean", "Min", "Sum")},
    **{name: of_several(name, SHAPE, (4, 1)) for name in ("Add", "Div", "Mul", "Sub")},
    **{name: of_several(name, (3, 4), (4,), to=BOOL) for name in ("Greater", "GreaterOrEqual", "Less", "LessOrEqual")},
    **{name: of_several(name, (3, 4), (4,), kind=BOOL) for name in ("And", "Or", "Xor")},
    **{name: of_kind(of(name, axis=1), TensorProto.INT64) for name in ("ArgMax", "ArgMin")},
    "AveragePool": of("AveragePool", kernel_shape=[2, 3], strides=[2, 1], pads=[1, 0, 0, 1]),
    "BatchNormalization": of("BatchNormalization", positive(4), normal(4), normal(4), positive(4)),
    "Cast": of_kind(of("Cast", to=TensorProto.FLOAT16), TensorProto.FLOAT16),
    "CastLike": of_kind(of("CastLike", np.ones(1, np.float64)), TensorProto.DOUBLE),
    "Clip": clip,
    "Concat": lambda opset: single("Concat", SHAPE, {"c": normal(2, 1, 4, 6)}, opset, axis=1),
    "Constant": constant,
    "Conv": of("Conv", normal(3, 4, 2, 3), normal(3), pads=[1, 0, 0, 1]),
    "ConvTranspose": of("ConvTranspose", normal(4, 3, 2, 3), normal(3), strides=[2, 1]),
    "CumSum": of("CumSum", np.int64(2)),
    "DepthToSpace": of("DepthToSpace", blocksize=2),
    "Dropout": dropout,
    "Einsum": of("Einsum", normal(6, 5), equation="bchw,wk->bkch"),
    "Equal": of_several("Equal", (3, 4), (4,), kind=TensorProto.INT32, to=BOOL),
    "Expand": of("Expand", ints(3, 2, 1, 4, 1)),
    "EyeLike": like_input("EyeLike", k=1),
    "Gather": of("Gather", ints(2, 0, 3), axis=2),
    "Gelu": gelu,
    "Gemm": of("Gemm", normal(6, 5), normal(5), shape=(3, 6), alpha=0.5, beta=2.0),
    "GroupNormalization": group_normalization,
    "InstanceNormalization": of("InstanceNormalization", positive(4), normal(4)),
    "LRN": of("LRN", size=3),
    "LayerNormalization": of("LayerNormalization", positive(6), normal(6)),
    "LpPool": of("LpPool", kernel_shape=[2, 2]),
    **{name: of_several(name, (3, 4), to=BOOL) for name in ("IsInf", "IsNaN")},
    "Mod": of("Mod", positive(4, 1), fmod=1),
    "MatMul": of("MatMul", normal(6, 5)),
    "MaxPool": of("MaxPool", kernel_shape=[2, 3], strides=[2, 1], pads=[1, 0, 0, 1]),
    "Not": of_several("Not", (3, 4), kind=BOOL),
    "OneHot": one_hot,
    "PRelu": of("PRelu", normal(4, 1, 1)),
    "Pad": pad,
    "Pow": of("Pow", np.float32(2)),
    "RMSNormalization": of("RMSNormalization", positive(4, 6), axis=2, epsilon=0.1),
    "RotaryEmbedding": of("RotaryEmbedding", normal(2, 4, 2), normal(2, 4, 2), rotary_embedding_dim=4),
    "Swish": of("Swish", alpha=0.7),
    "Reshape": of("Reshape", ints(0, -1, 6)),
    "Resize": resize,
    "Shape": like_input("Shape"),
    "Size": like_input("Size"),
    "Slice": slice_,
    "SpaceToDepth": of("SpaceToDepth", blocksize=2),
    "Split": split,
    "TopK": top_k,
    "Squeeze": with_axes("Squeeze", 13, 1, shape=(2, 1, 3)),
    "Tile": of("Tile", ints(1, 2, 1, 3)),
    "Trilu": of("Trilu", np.int64(1)),
    "Unsqueeze": with_axes("Unsqueeze", 13, 1, 3, shape=(2, 3)),
    "Upsample": of("Upsample", np.array([1, 1, 2, 3], np.float32), mode="nearest"),
    "Where": lambda opset: single(
        "Where", SHAPE, {"c": np.arange(6) > 2, "z": normal(4, 1)}, opset, ["c", "x", "z"]
    ),
}  # fmt: skip


QUANTIZED = {
    *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"),
    *("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"),
}
"""Which test_onnx_quantization.py tests, since they read and give integers."""


def _expected(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], opset: int) -> list[np.ndarray]:
    """What ONNX Runtime gives, or, of definitions that are newer than it, ONNX's own implementation."""
    if opset <= 21:
        return run_onnxruntime(model, feeds)
    if model.graph.node[-1].op_type == "GlobalLpPool":  # which neither has in opset 22, that adds types only
        older = onnx.ModelProto()
        older.CopyFrom(model)
        older.opset_import[0].version = 21
        return run_onnxruntime(older, feeds)
    try:
        return run_onnxruntime(model, feeds)
    except Exception:  # ONNX Runtime raises errors of many kinds for what it lacks
        return run_reference(model, feeds)


def test_every_operator_has_an_example() -> None:
    # Recurrent layers, and gathers and scatters at constant places, are in test_onnx_recurrent.py and
    # test_onnx_backend_nodes.py, each in the opset that it has now.
    elsewhere = {"GRU", "LSTM", "RNN", "GatherElements", "GatherND", "Scatter", "ScatterElements", "ScatterND"}
    # In test_onnx_sampling.py and test_onnx_linear.py:
    elsewhere |= {"AffineGrid", "Col2Im", "CumProd", "DFT", "GridSample", "STFT"}
    assert set(EXAMPLES) | QUANTIZED | elsewhere == covered_operators()


@pytest.mark.parametrize(
    ("op_type", "opset"), [(op_type, opset) for op_type in sorted(EXAMPLES) for opset in versions(op_type)]
)
def test_the_definition_of_an_opset(op_type: str, opset: int) -> None:
    model = EXAMPLES[op_type](opset)
    graph = from_onnx(model)
    feeds = {
        symbol.name: (positive if op_type in (*POSITIVE, "ReduceLogSum") else normal)(*symbol.shape)
        if symbol.type.is_float
        else RNG.integers(0, 2, symbol.shape).astype(symbol.dtype)
        for symbol in graph.inputs
    }
    found, expected = graph.evaluate(feeds), _expected(model, feeds, opset)
    for got, wanted in zip(found, expected, strict=True):
        assert got.shape == wanted.shape
        rough = 1e-3 if wanted.dtype == np.float16 else 2e-5
        np.testing.assert_allclose(got, wanted.astype(got.dtype), rtol=rough, atol=rough)
