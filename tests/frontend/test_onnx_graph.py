"""Inputs, outputs, names, the batch, and what is refused, when an ONNX model is read."""

from __future__ import annotations

import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import assert_agrees, make_model, operators_of, single

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.onnx import from_onnx

node = helper.make_node


def test_values_keep_their_names() -> None:
    nodes = [
        node("Relu", ["x"], ["/net/relu_0"]),
        node("Dropout", ["/net/relu_0"], ["d"]),
        node("Identity", ["d"], ["y"]),
    ]
    graph = assert_agrees(make_model(nodes, {"x": (2, 3)}))
    assert [symbol.name for symbol in graph.symbols] == ["x", "/net/relu_0", "d", "y"]


def test_made_up_names_never_take_those_of_values() -> None:
    """The first convolution needs a symbol before itself, which would by itself be called like the second value."""
    weight = np.ones((1, 1, 2, 2), np.float32)
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[0, 0, 1, 1]),
        node("Relu", ["c"], ["c_pad"]),
        node("Relu", ["c_pad"], ["y"]),
    ]
    graph = assert_agrees(make_model(nodes, {"x": (1, 1, 4, 4)}, constants={"w": weight}))
    assert graph.by_name["c_pad"].op == "relu"
    assert graph.by_name["c"].op == "Convolution"


def test_several_inputs_and_outputs() -> None:
    nodes = [node("Add", ["a", "b"], ["s"]), node("Mul", ["s", "a"], ["p"]), node("Relu", ["p"], ["r"])]
    graph = assert_agrees(make_model(nodes, {"a": (2, 3), "b": (2, 3), "unused": (1,)}, ["r", "s", "p"]))
    assert [symbol.name for symbol in graph.inputs] == ["a", "b", "unused"]


def test_outputs_that_are_inputs_initializers_or_folded() -> None:
    nodes = [node("Relu", ["x"], ["y"]), node("Neg", ["c"], ["n"])]
    model = make_model(nodes, {"x": (2,)}, ["x", "c", "n", "y"], {"c": np.array([1, -2], np.float32)})
    graph = from_onnx(model)
    x, c, n, y = graph.evaluate({"x": np.array([-1, 1])})
    np.testing.assert_array_equal([x, c, n, y], [[-1, 1], [1, -2], [-1, 2], [0, 1]])
    assert [symbol.name for symbol in graph.outputs] == ["x", "c", "n", "y"]


def test_initializers_listed_as_inputs_are_parameters() -> None:
    model = make_model(
        [node("Add", ["x", "w"], ["y"])], {"x": (2,), "w": (2,)}, constants={"w": np.ones(2, np.float32)}
    )
    graph = assert_agrees(model, {"x": np.zeros(2, np.float32)})
    assert [symbol.name for symbol in graph.inputs] == ["x"]


def test_unused_initializers_and_nodes_are_dropped() -> None:
    nodes = [node("Erf", ["x"], ["dead"]), node("Relu", ["x"], ["y"])]
    graph = assert_agrees(make_model(nodes, {"x": (2,)}, constants={"w": np.ones(2, np.float32)}))
    assert operators_of(graph) == ["relu"]
    assert not graph.parameters


@pytest.mark.parametrize("dim", ["N", None])
def test_the_dynamic_batch_is_fixed(dim: str | None) -> None:
    model = make_model([node("Relu", ["x"], ["y"])], {"x": (dim, 3)})
    assert from_onnx(model).inputs[0].shape == (1, 3)
    assert assert_agrees(model, batch=4).inputs[0].shape == (4, 3)


def test_a_static_batch_stays() -> None:
    assert from_onnx(single("Relu", (2, 3)), batch=7).inputs[0].shape == (2, 3)


def test_other_dynamic_axes_are_one_error() -> None:
    model = make_model([node("Add", ["a", "b"], ["y"])], {"a": ("N", "T", 3), "b": (1, None, 3)})
    with pytest.raises(
        GraphError, match=r"input a has the dynamic axis 1 \(T\); input b has the dynamic axis 1 \(SIZE1\); only axis 0"
    ):
        from_onnx(model)


def test_an_input_without_a_shape_or_of_text() -> None:
    model = make_model([node("Relu", ["x"], ["y"])], {"x": (1,)})
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(GraphError, match="input x states no shape"):
        from_onnx(model)
    model = make_model([node("Relu", ["x"], ["y"])], {"x": (1,)}, dtypes={"x": TensorProto.STRING})
    with pytest.raises(GraphError, match="input x is STRING"):
        from_onnx(model)


def test_batch_must_be_positive() -> None:
    with pytest.raises(GraphError, match="batch is 0"):
        from_onnx(single("Relu", (2, 3)), batch=0)


def test_every_uncovered_operator_is_listed_once() -> None:
    nodes = [node("Det", ["x"], ["e0"])]
    nodes += [node("Det", [f"e{index}"], [f"e{index + 1}"]) for index in range(4)]
    nodes += [
        node("Relu", ["e4"], ["r"]),
        node("Gelu", ["r"], ["g"], domain="com.microsoft"),
        node("DeformConv", ["g"], ["w"]),
        node("If", ["mask"], ["y"], then_branch=_branch("w"), else_branch=_branch("r")),
    ]
    model = make_model(nodes, {"x": (2,), "mask": (1,)}, ["y", "w"], dtypes={"mask": TensorProto.BOOL})
    with pytest.raises(UnsupportedOperatorError) as caught:
        from_onnx(model)
    message = str(caught.value)
    assert (
        "4 operators not covered: Det ×5 (e0, e1, e2, …); DeformConv ×1 (w); If decided by mask ×1 (y); "
        "com.microsoft.Gelu ×1 (g);" in message
    )
    assert "\n" not in message


def _branch(name: str) -> onnx.GraphProto:
    return helper.make_graph(
        [node("Identity", [name], ["out"])], "branch", [], [helper.make_tensor_value_info("out", 1, None)]
    )


@pytest.mark.parametrize("opset", [8, 29])
def test_other_opsets_are_refused(opset: int) -> None:
    with pytest.raises(GraphError, match=f"is of opset {opset}; 9 to 28 are read"):
        from_onnx(single("Relu", (2,), opset=opset))


def test_other_domains_may_be_declared() -> None:
    model = single("Relu", (2,))
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    assert operators_of(assert_agrees(model)) == ["relu"]


def test_local_functions_are_inlined() -> None:
    double = helper.make_function(
        "local", "Double", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    model = make_model([node("Double", ["x"], ["y"], domain="local")], {"x": (2,)})
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.functions.append(double)
    assert operators_of(assert_agrees(model)) == ["elemwise_add"]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Relu", ["missing"], ["y"])], r"y \(Relu\): reads missing, which no input"),
        ([node("Relu", ["later"], ["y"]), node("Relu", ["x"], ["later"])], r"y \(Relu\): reads later, which no"),
        ([node("Relu", ["x"], ["other"])], "output y is given by no node"),
        ([node("Relu", ["x"], ["y"]), node("Tanh", ["x"], ["y"])], "two values of the model are called y"),
        ([node("Relu", ["x"], ["x"]), node("Relu", ["x"], ["y"])], "two values of the model are called x"),
        ([node("Add", ["x"], ["y"])], r"y \(Add\): input 1 is missing"),
        ([node("Softmax", ["x"], ["y"], axis=1.5)], r"y \(Softmax\): attribute axis is FLOAT; an integer is needed"),
        ([node("Conv", ["x", "w"], ["y"])], "reads w, which no input"),
    ],
)  # fmt: skip
def test_malformed_graphs(nodes: list[onnx.NodeProto], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        from_onnx(make_model(nodes, {"x": (2, 3)}))


def test_shapes_that_do_not_fit_name_the_symbol() -> None:
    model = make_model([node("Add", ["a", "b"], ["y"])], {"a": (2, 3), "b": (2, 4)})
    with pytest.raises(GraphError, match=r"y \(broadcast_add\)"):
        from_onnx(model)


def test_a_chain_of_ten_thousand_operators() -> None:
    count = 10_000
    names = ["x", *(f"v{index}" for index in range(1, count)), "y"]
    nodes = [node("Relu", [names[index]], [names[index + 1]]) for index in range(count)]
    started = time.perf_counter()
    graph = from_onnx(make_model(nodes, {"x": (2,)}))
    assert time.perf_counter() - started < 60  # a hang, on any machine
    assert len(graph.operators) == count


def test_reading_does_not_change_the_model() -> None:
    model = single("Gemm", (2, 3), {"w": np.ones((3, 4), np.float32)}, alpha=0.5)
    before = model.SerializeToString()
    from_onnx(model)
    assert model.SerializeToString() == before


def test_reading_twice_gives_the_same_graph() -> None:
    model = single("Conv", (1, 2, 5, 5), {"w": np.ones((3, 2, 2, 2), np.float32)}, pads=[0, 0, 1, 1])
    first, second = from_onnx(model), from_onnx(model)
    assert [(s.name, s.operator, s.type) for s in first.symbols] == [
        (s.name, s.operator, s.type) for s in second.symbols
    ]


def test_a_scalar_tensor_as_raw_bytes() -> None:
    model = make_model([node("Add", ["x", "c"], ["y"])], {"x": (2,)})
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0.1), "c"))
    (symbol,) = assert_agrees(model).operators
    assert symbol.operator.scalar == float(np.float32(0.1))
