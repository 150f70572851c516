"""Shape arithmetic and other work on constants folds away while an ONNX model is read."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import assert_agrees, make_model, operators_of

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.onnx import from_onnx

RNG = np.random.default_rng(6)


def node(op_type: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    """A node whose inputs and outputs are given as words; `_` stands for one left out."""
    return helper.make_node(
        op_type, ["" if name == "_" else name for name in inputs.split()], outputs.split(), **attributes
    )


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("value", numpy_helper.from_array(np.array([1.0, 2.0, 3.0], np.float32))),
        ("value_float", 2.5),
        ("value_floats", [1.0, 2.0, 3.0]),
    ],
)
def test_constants_of_every_kind(attribute: str, value: object) -> None:
    nodes = [helper.make_node("Constant", [], ["c"], **{attribute: value}), node("Add", "x c", "y")]
    assert_agrees(make_model(nodes, {"x": (2, 3)}))


@pytest.mark.parametrize(("attribute", "value"), [("value_int", 1), ("value_ints", [1])])
def test_integer_constants(attribute: str, value: object) -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], **{attribute: value}),
        node("Cast", "c", "f", to=1),
        node("Add", "x f", "y"),
    ]
    assert operators_of(assert_agrees(make_model(nodes, {"x": (2, 3)}))) == ["_plus_scalar"]


def test_the_view_of_torch_leaves_the_batch_free() -> None:
    """x.view(x.size(0), -1) as exported: Shape, Gather, Unsqueeze, Concat, Reshape."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Unsqueeze", "n axes", "u"),
        node("Concat", "u rest", "t", axis=0),
        node("Reshape", "x t", "y"),
    ]
    constants = {"zero": np.int64(0), "axes": np.array([0]), "rest": np.array([-1])}
    model = make_model(nodes, {"x": ("N", 3, 4)}, constants=constants)
    graph = assert_agrees(model)
    assert operators_of(graph) == ["Flatten"]
    assert graph.outputs[0].shape == (1, 12)
    assert from_onnx(model, batch=5).outputs[0].shape == (5, 12)


def test_the_pad_of_torch() -> None:
    """The pads of F.pad as exported: reversed through ConstantOfShape, Concat, Reshape, Slice, Transpose, Cast."""
    nodes = [
        node("ConstantOfShape", "two", "zeros", value=numpy_helper.from_array(np.array([0]))),
        node("Concat", "given zeros", "all", axis=0),
        node("Reshape", "all pairs", "r"),
        node("Slice", "r last first axis back", "s"),
        node("Transpose", "s", "t", perm=[1, 0]),
        node("Reshape", "t flat", "f"),
        node("Cast", "f", "pads", to=TensorProto.INT64),
        node("Pad", "x pads", "y", mode="constant"),
    ]
    constants = {
        "two": np.array([2]), "given": np.array([1, 2, 0, 3, 0, 1]), "pairs": np.array([-1, 2]), "last": np.array([-1]),
        "first": np.array([-(2**63) + 1]), "axis": np.array([0]), "back": np.array([-1]), "flat": np.array([-1]),
    }  # fmt: skip
    assert operators_of(assert_agrees(make_model(nodes, {"x": (1, 2, 3, 4)}, constants=constants))) == ["Pad"]


def test_a_grid_of_positions() -> None:
    """Range, Expand, Where, Equal, Floor and arithmetic on sizes, as position embeddings are exported."""
    nodes = [
        node("Shape", "x", "s", start=1),
        node("Gather", "s one", "length", axis=0),
        node("Range", "zero length one", "r"),
        node("Cast", "r", "rf", to=1),
        node("Div", "rf two", "h"),
        node("Floor", "h", "floor"),
        node("Equal", "floor fzero", "is_zero"),
        node("Where", "is_zero minus floor", "w"),
        node("Unsqueeze", "w axes", "column"),
        node("Shape", "x", "full"),
        node("Expand", "column full", "e"),
        node("Add", "x e", "y"),
    ]
    constants = {
        "zero": np.int64(0), "one": np.int64(1), "two": np.float32(2), "fzero": np.float32(0),
        "minus": np.float32(-1), "axes": np.array([0]),
    }  # fmt: skip
    graph = assert_agrees(make_model(nodes, {"x": (1, 3, 4)}, constants=constants))
    assert operators_of(graph) == ["broadcast_add"]


def test_positions_are_repeated_beside_their_own_axis() -> None:
    """The rows of one map for each place of another, as attention to pooled maps is exported."""
    nodes = [
        node("Expand", "rows full", "e"),
        node("ReduceMax", "e", "r", axes=[3], keepdims=0),
        node("Cast", "r", "f", to=TensorProto.FLOAT),
        node("Add", "x f", "y"),
    ]
    constants = {"rows": np.arange(3136)[:, None], "full": np.array([1, 1, 3136, 196])}
    assert operators_of(assert_agrees(make_model(nodes, {"x": (1, 1, 3136)}, constants=constants))) == ["broadcast_add"]


FOLDED = [
    ("Add", [ints := np.array([5, -7]), np.array([2, 2])], {}, 13),
    ("Sub", [ints, np.array([2, 2])], {}, 13),
    ("Mul", [ints, np.array([2, 2])], {}, 13),
    ("Div", [ints, np.array([2, 2])], {}, 13),
    ("Mod", [ints, np.array([3, 3])], {}, 13),
    ("Mod", [ints, np.array([3, 3])], {"fmod": 1}, 13),
    ("Max", [ints, np.array([0, 0])], {}, 13),
    ("Min", [ints, np.array([0, 0])], {}, 13),
    ("Neg", [ints], {}, 13),
    ("Abs", [ints], {}, 13),
    ("Floor", [np.array([1.5, -1.5], np.float32)], {}, 13),
    ("Ceil", [np.array([1.5, -1.5], np.float32)], {}, 13),
    ("Round", [np.array([1.5, 2.5, -0.5], np.float32)], {}, 13),
    ("Sqrt", [np.array([4.0, 2.0], np.float32)], {}, 13),
    ("Pow", [np.array([4.0, 2.0], np.float32), np.array([2.0], np.float32)], {}, 13),
    ("Reciprocal", [np.array([4.0, 2.0], np.float32)], {}, 13),
    ("Cast", [np.array([1.7, -1.7], np.float32)], {"to": 7}, 13),
    ("Cast", [np.array([1, 0])], {"to": 9}, 13),
    ("Gather", [np.arange(6).reshape(2, 3), np.array([-1, 0])], {"axis": 1}, 13),
    ("Concat", [ints, ints], {"axis": 0}, 13),
    ("Slice", [np.arange(10), np.array([8]), np.array([-(2**63)]), np.array([0]), np.array([-3])], {}, 13),
    ("Slice", [np.arange(10)], {"starts": [2], "ends": [2**63 - 1]}, 9),
    ("Squeeze", [np.array([[3]]), np.array([0])], {}, 13),
    ("Unsqueeze", [ints], {"axes": [0]}, 11),
    ("Reshape", [np.arange(6), np.array([0, -1, 1])], {}, 13),
    ("Transpose", [np.arange(6).reshape(2, 3)], {}, 13),
    ("Expand", [np.arange(3), np.array([2, 1])], {}, 13),
    ("Tile", [np.arange(3), np.array([2])], {}, 13),
    ("Range", [np.int64(1), np.int64(9), np.int64(3)], {}, 13),
    ("ConstantOfShape", [np.array([2, 3])], {}, 13),
    ("Where", [np.array([True, False]), ints, np.array([0, 9])], {}, 13),
    ("Equal", [ints, np.array([5, 5])], {}, 13),
    ("Greater", [ints, np.array([0, 0])], {}, 13),
    ("Not", [np.array([True, False])], {}, 13),
    ("And", [np.array([True, False]), np.array([True, True])], {}, 13),
    ("ReduceProd", [np.arange(1, 5)], {"keepdims": 0}, 13),
    ("ReduceSum", [np.arange(1, 5).reshape(2, 2), np.array([1])], {"keepdims": 0}, 13),
    ("ReduceMax", [np.arange(1, 5).reshape(2, 2)], {"axes": [1]}, 13),
    ("NonZero", [np.array([0, 3, 0, 1])], {}, 13),
    ("CumSum", [np.arange(5), np.int64(0)], {}, 13),
    ("Trilu", [np.ones((3, 3), np.float32)], {"upper": 0}, 17),
    ("ScatterND", [np.arange(4), np.array([[1], [3]]), np.array([9, 8])], {}, 13),
    ("OneHot", [np.array([0, 2]), np.int64(3), np.array([0.0, 1.0], np.float32)], {}, 13),
    ("OneHot", [np.array([[1], [2]]), np.array([3]), np.array([0.0, 1.0], np.float32)], {"axis": 1}, 13),
    ("Erf", [np.array([0.5, -2.0], np.float32)], {}, 13),
    ("MatMul", [np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)], {}, 13),
    ("Pad", [np.arange(3), np.array([1, 2])], {}, 13),
    ("Size", [np.zeros((3, 4))], {}, 13),
    ("Shape", [np.zeros((3, 4))], {"start": -1}, 15),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op_type", "arrays", "attributes", "opset"), FOLDED, ids=lambda v: v if isinstance(v, str) else ""
)
def test_operators_on_constants_fold(
    op_type: str, arrays: list[np.ndarray], attributes: dict[str, object], opset: int
) -> None:
    constants = {f"c{index}": np.asarray(array) for index, array in enumerate(arrays)}
    nodes = [
        helper.make_node(op_type, list(constants), ["folded"], **attributes),
        helper.make_node("Cast", ["folded"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Identity", ["floats"], ["z"]),
        helper.make_node("Identity", ["x"], ["y"]),
    ]
    graph = assert_agrees(make_model(nodes, {"x": (1,)}, ["y", "z"], constants, opset))
    assert operators_of(graph) == ["_copy"]


def test_a_split_of_a_constant_folds() -> None:
    nodes = [node("Split", "c", "p q", axis=0), node("Mul", "x p", "t"), node("Add", "t q", "y")]
    constants = {"c": np.arange(6, dtype=np.float32).reshape(2, 3)}
    assert operators_of(assert_agrees(make_model(nodes, {"x": (2, 3)}, constants=constants))) == [
        "broadcast_mul", "broadcast_add",
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_weights_of_other_floats_become_float32(dtype: type) -> None:
    weight = RNG.standard_normal((4, 5)).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = make_model(
        [node("MatMul", "x w", "y")], {"x": (2, 4)}, constants={"w": weight}, dtypes={"x": kind, "y": kind}
    )
    graph = from_onnx(model)
    assert {value.dtype.name for value in graph.parameters.values()} == {"float32"}
    x = RNG.standard_normal((2, 4))
    np.testing.assert_allclose(graph.evaluate({"x": x})[0], x @ weight.astype(np.float64), rtol=1e-5, atol=1e-5)


def test_bfloat16_weights_become_float32() -> None:
    weight = helper.make_tensor("w", TensorProto.BFLOAT16, [3], [0.5, -1.25, 3.0])
    model = make_model([node("Add", "x w", "y")], {"x": (2, 3)})
    model.graph.initializer.append(weight)
    (value,) = from_onnx(model).parameters.values()
    np.testing.assert_array_equal(value, np.array([0.5, -1.25, 3.0], np.float32))
    assert value.dtype == np.float32


def test_sparse_constants_are_refused() -> None:
    values = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    indices = helper.make_tensor("i", TensorProto.INT64, [1], [2])
    sparse = helper.make_sparse_tensor(values, indices, [4])
    model = make_model([node("Add", "x w", "y")], {"x": (4,)})
    model.graph.sparse_initializer.append(sparse)
    with pytest.raises(GraphError, match="sparse initializers, which are not read: w; store them densely"):
        from_onnx(model)
    nodes = [helper.make_node("Constant", [], ["w"], sparse_value=sparse), node("Add", "x w", "y")]
    with pytest.raises(UnsupportedOperatorError, match=r"w \(Constant\): the value is given as sparse_value"):
        from_onnx(make_model(nodes, {"x": (4,)}))


def test_a_constant_node_that_cannot_be_computed_is_named() -> None:
    constants = {"a": np.array([1, 2]), "b": np.array([1, 2, 3])}
    model = make_model(
        [helper.make_node("Add", ["a", "b"], ["c"], name="sum"), node("Cast", "c", "y", to=1)],
        {"x": (1,)},
        constants=constants,
    )
    with pytest.raises(GraphError, match=r"sum \(Add\): cannot be computed on its constant inputs"):
        from_onnx(model)


def test_a_constant_too_large_is_refused_before_it_is_made() -> None:
    nodes = [node("ConstantOfShape", "s", "c"), node("Add", "x c", "y")]
    with pytest.raises(GraphError, match=r"c \(ConstantOfShape\).*1e\+12 elements"):
        from_onnx(make_model(nodes, {"x": (1,)}, constants={"s": np.array([10**6, 10**6])}))


def test_an_operator_covered_on_constants_only() -> None:
    constants = {"c": np.array(1.0, np.float32), "l": np.array(3.0, np.float32), "d": np.array(1.0, np.float32)}
    nodes = [node("Range", "c l d", "e"), node("Add", "x e", "y")]
    assert_agrees(make_model(nodes, {"x": (2,)}, constants=constants))
    with pytest.raises(UnsupportedOperatorError, match="Range"):
        from_onnx(make_model([node("Range", "x l d", "y")], {"x": ()}, constants=constants))
