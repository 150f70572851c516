"""Reading a Relax module: its function, parameters, batch, names, outputs, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from relax_modules import build, constant, random, run
from tvm import relax, tirx
from tvm.relax import op

from mrt.errors import DataError, GraphError, UnsupportedOperatorError
from mrt.frontend.relax import from_relax
from mrt.symbol import TensorType


def dense(x: Any, w: Any, b: Any) -> Any:
    return op.add(op.matmul(x, op.permute_dims(w)), b)


WEIGHT, BIAS, DATA = random(3, 4), random(3, seed=1), random(2, 4, seed=2)
DENSE = {"x": (2, 4), "w": (3, 4), "b": (3,)}
EXPECTED = DATA.astype("float64") @ WEIGHT.T + BIAS


# Parameters


@pytest.mark.parametrize(
    "params",
    [
        {"w": WEIGHT, "b": BIAS},
        {"w": tvm.runtime.tensor(WEIGHT), "b": tvm.runtime.tensor(BIAS)},
        [WEIGHT, BIAS],
        {"main": [tvm.runtime.tensor(WEIGHT), tvm.runtime.tensor(BIAS)]},
    ],
    ids=["mapping", "tvm tensors", "list", "detached"],
)
def test_params_are_bound(params: Any) -> None:
    graph = from_relax(build(dense, **DENSE), params)
    assert [symbol.name for symbol in graph.inputs] == ["x"]
    assert graph.count_operators() == {"FullyConnected": 1}
    np.testing.assert_allclose(graph.evaluate({"x": DATA})[0], EXPECTED, rtol=1e-5)


def test_arguments_without_a_value_are_inputs() -> None:
    graph = from_relax(build(dense, **DENSE), {"b": BIAS})
    assert [(symbol.name, symbol.shape) for symbol in graph.inputs] == [("x", (2, 4)), ("w", (3, 4))]
    np.testing.assert_allclose(graph.evaluate({"x": DATA, "w": WEIGHT})[0], EXPECTED, rtol=1e-5)


def with_attributes(mod: tvm.IRModule, **attributes: Any) -> tvm.IRModule:
    function = mod["main"]
    for name, value in attributes.items():
        function = function.with_attr(name, value)
    return tvm.IRModule({"main": function})


def test_params_that_an_importer_left_in_the_function_are_taken() -> None:
    tensors = [tvm.runtime.tensor(WEIGHT), tvm.runtime.tensor(BIAS)]
    mod = with_attributes(build(dense, **DENSE), num_input=1, params=tensors)
    np.testing.assert_allclose(from_relax(mod).evaluate({"x": DATA})[0], EXPECTED, rtol=1e-5)
    detached, params = relax.frontend.detach_params(mod)
    np.testing.assert_allclose(from_relax(detached, params).evaluate({"x": DATA})[0], EXPECTED, rtol=1e-5)


def test_params_that_an_importer_left_for_inputs_only_are_none() -> None:
    """Arrays of constants that stand in the body, as TVM's TFLite importer leaves them."""
    mod = with_attributes(build(lambda x: relax.op.nn.relu(x), x=(2,)), num_input=1, params=[tvm.runtime.tensor(DATA)])
    assert [symbol.name for symbol in from_relax(mod).inputs] == ["x"]


def test_num_input_says_which_arguments_need_a_value() -> None:
    with pytest.raises(DataError, match=r"2 have no value \(w, b\)"):
        from_relax(with_attributes(build(dense, **DENSE), num_input=1))


@pytest.mark.parametrize(
    ("params", "found"),
    [
        ({"weight": WEIGHT}, "names weight; the parameters of main are x, w, b"),
        ({"w": WEIGHT.T}, r"parameter w is given with shape \(4, 3\); \(3, 4\) is needed"),
        ({"w": WEIGHT.astype("int32")}, "parameter w is given as int32"),
        (WEIGHT, "params is of type ndarray; a mapping of names to arrays or a list is needed"),
        ([WEIGHT] * 4, "params has 4 values; main takes 3 of the parameters x, w, b"),
    ],
)
def test_params_that_do_not_fit(params: Any, found: str) -> None:
    with pytest.raises(DataError, match=found):
        from_relax(build(dense, **DENSE), params)


def test_parameters_keep_their_names_and_are_shared() -> None:
    kernel = random(2, 2, 1, 1)

    def body(x: Any, kernel: Any) -> Any:
        return op.nn.conv2d(op.nn.relu(op.nn.conv2d(x, kernel)), kernel)

    graph = from_relax(build(body, x=(1, 2, 3, 3), kernel=(2, 2, 1, 1)), {"kernel": kernel})
    assert set(graph.parameters) == {"kernel"}


def test_every_float_becomes_float32() -> None:
    mod = build(lambda x, w: op.multiply(x, w), x=((2,), "float64"), w=((2,), "float64"))
    graph = from_relax(mod, {"w": np.array([0.5, 2.0])})
    assert graph.inputs[0].type == TensorType((2,), "float32")
    assert graph.parameters["w"].dtype == np.float32


# The batch


def test_dynamic_batch_is_fixed() -> None:
    batch = tirx.Var("n", "int64")
    weight = random(8, 3)

    def body(x: Any) -> Any:
        y = op.reshape(op.nn.relu(x), (batch, 8))
        return op.matmul(y, constant(weight))

    mod = build(body, x=(batch, 2, 4))
    assert from_relax(mod).inputs[0].shape == (1, 2, 4)
    graph, data = from_relax(mod, batch=3), random(3, 2, 4)
    np.testing.assert_allclose(graph.evaluate({"x": data})[0], run(mod, {"x": data})[0], rtol=1e-5, atol=1e-5)


def test_reshapes_leave_the_batch_free() -> None:
    graph = from_relax(build(lambda x: op.reshape(x, (1, 2, 2, 3)), x=(1, 4, 3)))
    assert graph.outputs[0].operator.attributes()["shape"] == (0, 2, 2, 3)


def test_dynamic_sizes_of_parameters_are_those_of_their_values() -> None:
    batch, width = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    mod = build(dense, x=(batch, 4), w=(width, 4), b=(width,))
    graph = from_relax(mod, [WEIGHT, BIAS], batch=2)
    np.testing.assert_allclose(graph.evaluate({"x": DATA})[0], EXPECTED, rtol=1e-5)


def test_other_dynamic_axes_are_refused() -> None:
    width = tirx.Var("m", "int64")
    with pytest.raises(GraphError, match="input x has the dynamic axis 1"):
        from_relax(build(op.nn.relu, x=(1, width)))


def test_squeeze_of_every_axis_keeps_a_dynamic_batch() -> None:
    mod = build(lambda x: op.squeeze(x), x=(tirx.Var("n", "int64"), 1, 4))
    assert from_relax(mod).outputs[0].shape in {(1, 4), (4,)}
    assert from_relax(mod, batch=2).outputs[0].shape == (2, 4)


def test_batch_must_be_positive() -> None:
    with pytest.raises(GraphError, match="batch is 0"):
        from_relax(build(op.nn.relu, x=(1, 2)), batch=0)


# Inputs, outputs, names, structure


def test_several_inputs_and_nested_outputs() -> None:
    def body(x: Any, y: Any) -> list[Any]:
        return [op.add(x, y), relax.Tuple([op.nn.relu(x), y]), op.split(y, 2, 1)]

    mod, feeds = build(body, x=(2, 4), y=(2, 4)), {"x": random(2, 4), "y": random(2, 4, seed=1)}
    for ours, theirs in zip(from_relax(mod).evaluate(feeds), run(mod, feeds), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_names_are_those_of_the_variables_made_unique() -> None:
    data = relax.Var("x", relax.TensorType((1, 2)))
    first, second = relax.Var("y", relax.TensorType((1, 2))), relax.Var("y", relax.TensorType((1, 2)))
    third = relax.Var("x", relax.TensorType((1, 2)))
    bindings = [
        relax.VarBinding(first, op.nn.relu(data)),
        relax.VarBinding(second, op.tanh(first)),
        relax.VarBinding(third, op.sigmoid(second)),
    ]
    body = relax.SeqExpr([relax.BindingBlock(bindings)], third)
    mod = tvm.IRModule({"main": relax.Function([data], body, relax.TensorType((1, 2)))})
    assert [symbol.name for symbol in from_relax(mod).symbols] == ["x", "y", "y_1", "x_1"]


def test_match_cast_is_the_value_itself() -> None:
    data = relax.Var("x", relax.TensorType((1, 4)))
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        cast = builder.match_cast(builder.emit(op.nn.relu(data)), relax.TensorType((1, 4)))
        builder.emit_func_output(builder.emit(op.tanh(cast)))
    assert from_relax(builder.get()).count_operators() == {"relu": 1, "tanh": 1}


def test_shape_of_a_tensor_is_known() -> None:
    def body(x: Any) -> Any:
        shape = op.shape_to_tensor(op.shape_of(x))
        return op.reshape(x, op.tensor_to_shape(op.take(shape, constant([0, 2, 1], "int64"), 0)))

    mod = build(body, x=(1, 2, 3))
    assert from_relax(mod).outputs[0].shape == (1, 3, 2)


def test_private_functions_are_inlined() -> None:
    builder = relax.BlockBuilder()
    inner, outer = (relax.Var("x", relax.TensorType((1, 4))) for _ in range(2))
    with builder.function("block", [inner], private=True):
        builder.emit_func_output(builder.emit(op.tanh(inner)))
    block = builder.get().get_global_var("block")
    with builder.function("main", [outer]):
        builder.emit_func_output(builder.emit(op.nn.relu(builder.emit(relax.Call(block, [outer])))))
    assert from_relax(builder.get()).count_operators() == {"tanh": 1, "relu": 1}


def test_the_only_function_is_read_whatever_its_name() -> None:
    function = build(op.nn.relu, x=(1, 2))["main"]
    assert from_relax(tvm.IRModule({"forward": function})).count_operators() == {"relu": 1}


def test_an_output_may_be_an_input_or_a_constant() -> None:
    graph = from_relax(build(lambda x: [x, constant([1.0, 2.0])], x=(2,)))
    np.testing.assert_array_equal(graph.evaluate({"x": np.array([3.0, 4.0], "float32")}), [[3, 4], [1, 2]])


def test_constants_without_axes_keep_their_rank() -> None:
    graph = from_relax(build(lambda x: [x, constant(2.0), op.add(x, op.expand_dims(constant(2.0), [0, 1]))], x=(1, 3)))
    assert [output.shape for output in graph.outputs] == [(1, 3), (), (1, 3)]
    assert graph.evaluate({"x": np.ones((1, 3), np.float32)})[2].tolist() == [[3.0, 3.0, 3.0]]


def test_a_chain_of_thousands() -> None:
    def body(x: Any) -> Any:
        for _ in range(2000):
            x = builder.emit(op.nn.relu(x))
        return x

    data = relax.Var("x", relax.TensorType((1, 2)))
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            output = builder.emit_output(body(data))
        builder.emit_func_output(output)
    assert from_relax(builder.get()).count_operators() == {"relu": 2000}


# Refusals


def test_no_module() -> None:
    with pytest.raises(GraphError, match="str is given; a tvm.IRModule is needed"):
        from_relax("model.onnx")


def test_no_function() -> None:
    with pytest.raises(GraphError, match="no Relax function"):
        from_relax(tvm.IRModule())
    function = build(op.nn.relu, x=(1, 2))["main"].without_attr("global_symbol")
    with pytest.raises(GraphError, match="a, b; one function called main is needed"):
        from_relax(tvm.IRModule({"a": function, "b": function}))


def test_every_operator_that_is_not_covered_is_listed() -> None:
    def body(x: Any) -> Any:
        for _ in range(4):
            x = op.bitwise_not(op.nn.relu(x))
        x = op.nn.pad(op.bitwise_xor(x, x), [0, 0, 1, 1], "circular")
        return op.call_dps_packed("my_function", [x], out_ty=relax.TensorType((1, 4)))

    with pytest.raises(UnsupportedOperatorError) as caught:
        from_relax(build(body, x=(1, 2)))
    message = str(caught.value)
    assert "uses 3 operators not covered: relax.bitwise_not ×4 (lv1, lv3, lv5, …); " in message
    assert "relax.call_dps_packed of my_function ×1" in message
    assert "relax.bitwise_xor ×1" in message
    assert "pad_mode" not in message, "what follows from a call that is not covered is no news"


def test_lowered_module_lists_its_calls() -> None:
    mod = build(lambda x, w: op.nn.conv2d(op.nn.conv2d(x, w), w), x=(1, 2, 6, 6), w=(2, 2, 3, 3))
    message = r"relax.call_tir of conv2d ×2 \(lv: block \w+ reduces over windows .*, gv: block \w+ reduces over windows"
    with pytest.raises(UnsupportedOperatorError, match=message):
        from_relax(relax.transform.LegalizeOps()(mod))


def test_a_variable_that_is_renamed_gives_its_name_to_the_symbol() -> None:
    """Importers name the results of a format's operators so, which may be several calls in Relax."""
    x = relax.Var("x", relax.TensorType((1, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit(builder.emit(relax.op.exp(x)), "first")
            again = builder.emit(first, "again")
            last = builder.emit(builder.emit(relax.op.nn.relu(relax.op.add(again, again))), "first")
            output = builder.emit_output([last, x])
        builder.emit_func_output(output)
    graph = from_relax(builder.get())
    assert [symbol.name for symbol in graph.operators] == ["first", "lv1", "first1"]
