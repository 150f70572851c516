"""Elementwise ONNX operators mean here what they mean in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_models import OPSETS, assert_agrees, make_model, operators_of, single

from mrt.errors import UnsupportedOperatorError
from mrt.frontend.onnx import from_onnx

SHAPE = (2, 3, 4)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize(
    ("op_type", "attributes", "record"),
    [
        ("Relu", {}, "relu"),
        ("Sigmoid", {}, "sigmoid"),
        ("Tanh", {}, "tanh"),
        ("LeakyRelu", {}, "LeakyReLU"),
        ("LeakyRelu", {"alpha": 0.3}, "LeakyReLU"),
        ("Neg", {}, "_mul_scalar"),
        ("Identity", {}, "_copy"),
    ],
)
def test_functions_of_one_input(opset: int, op_type: str, attributes: dict[str, float], record: str) -> None:
    graph = assert_agrees(single(op_type, SHAPE, opset=opset, **attributes))
    assert operators_of(graph) == [record]


@pytest.mark.parametrize(
    ("low", "high", "record"),
    [(-0.5, 0.75, "clip"), (0.0, 6.0, "clip"), (0.0, None, "relu"), (-0.5, None, "clip"), (None, 0.5, "clip"),
     (None, None, "_copy"), (0.5, -0.5, "clip")],
)  # fmt: skip
@pytest.mark.parametrize("opset", OPSETS)
def test_clip_with_open_ends(opset: int, low: float | None, high: float | None, record: str) -> None:
    if opset < 11:
        if low is not None and high is not None and low > high:
            pytest.skip("ONNX Runtime refuses crossed attributes")
        ends = {name: value for name, value in (("min", low), ("max", high)) if value is not None}
        model = single("Clip", SHAPE, opset=opset, **ends)
    else:
        given = {name: np.float32(v) for name, v in (("lo", low), ("hi", high)) if v is not None}
        inputs = ["x", "lo" if "lo" in given else "", "hi" if "hi" in given else ""]
        model = single("Clip", SHAPE, given, opset, inputs)
    assert operators_of(assert_agrees(model)) == [record]


@pytest.mark.parametrize(("names", "records"), [(["low"], 1), (["", "high"], 1), (["low", "high"], 2)])
def test_clip_at_computed_ends(names: list[str], records: int) -> None:
    inputs = {name: () for name in names if name}
    model = make_model([helper.make_node("Clip", ["x", *names], ["y"])], {"x": (5,), **inputs})
    feeds = {"x": np.linspace(-2, 2, 5, dtype=np.float32), "low": np.float32(-1), "high": np.float32(0.5)}
    graph = assert_agrees(model, {name: feeds[name] for name in ("x", *inputs)})
    assert len(operators_of(graph)) == records


@pytest.mark.parametrize(("high", "records"), [(0.5, 2), (np.inf, 1)])
def test_clip_at_a_computed_and_a_constant_end(high: float, records: int) -> None:
    node = helper.make_node("Clip", ["x", "low", "high"], ["y"])
    model = make_model([node], {"x": (5,), "low": ()}, constants={"high": np.float32(high)})
    graph = assert_agrees(model, {"x": np.linspace(-2, 2, 5, dtype=np.float32), "low": np.float32(-1)})
    assert len(operators_of(graph)) == records


@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("other", [SHAPE, (3, 4), (1, 3, 1), (1,), (), (5, 1, 3, 4), (1, 1, 1, 1)])
@pytest.mark.parametrize("constant_side", [None, "left", "right"])
def test_arithmetic_of_any_shapes_and_constants(
    op_type: str, other: tuple[int, ...], constant_side: str | None
) -> None:
    rng = np.random.default_rng(1)
    value = (rng.random(other) + 0.5).astype(np.float32)
    names = ["c", "x"] if constant_side == "left" else ["x", "c"]
    node = helper.make_node(op_type, names, ["y"])
    if constant_side:
        model, feeds = make_model([node], {"x": SHAPE}, constants={"c": value}), {}
    else:
        model, feeds = make_model([node], {"x": SHAPE, "c": other}), {"c": value}
    feeds["x"] = (rng.random(SHAPE) + 0.5).astype(np.float32)
    graph = assert_agrees(model, feeds)
    (record,) = operators_of(graph)
    if constant_side and value.size == 1 and value.ndim <= len(SHAPE):
        assert record.endswith("_scalar")
        assert not graph.parameters
    elif not constant_side and other == SHAPE and op_type != "Div":
        assert record == f"elemwise_{op_type.lower()}"
    else:
        assert record == f"broadcast_{op_type.lower()}"


def test_a_value_times_itself() -> None:
    model = make_model([helper.make_node("Mul", ["x", "x"], ["y"])], {"x": SHAPE})
    assert operators_of(assert_agrees(model)) == ["elemwise_mul"]


@pytest.mark.parametrize(
    ("shapes", "records"),
    [
        ([SHAPE], ["_copy"]),
        ([SHAPE, SHAPE, SHAPE], ["add_n"]),
        ([SHAPE, (4,), (3, 1)], ["broadcast_add", "broadcast_add"]),
    ],
)
def test_sum_of_any_number(shapes: list[tuple[int, ...]], records: list[str]) -> None:
    inputs = {f"x{index}": shape for index, shape in enumerate(shapes)}
    model = make_model([helper.make_node("Sum", list(inputs), ["y"])], inputs)
    assert operators_of(assert_agrees(model)) == records


@pytest.mark.parametrize("shapes", [[SHAPE], [SHAPE, SHAPE, SHAPE], [SHAPE, (4,), (3, 1)]])
def test_mean_of_any_number(shapes: list[tuple[int, ...]]) -> None:
    inputs = {f"x{index}": shape for index, shape in enumerate(shapes)}
    records = operators_of(assert_agrees(make_model([helper.make_node("Mean", list(inputs), ["y"])], inputs)))
    assert records[-1:] == (["_copy"] if len(shapes) == 1 else ["_mul_scalar"])


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize(
    ("data", "slope"),
    [((2, 3, 4, 5), (3, 1, 1)), ((2, 3, 4, 5), (1,)), ((2, 3), (3,)), ((2, 3, 4), (1, 3, 1)), ((4,), (1,))],
)
def test_slopes_of_all_and_of_each_channel(opset: int, data: tuple[int, ...], slope: tuple[int, ...]) -> None:
    values = np.random.default_rng(2).standard_normal(slope).astype(np.float32)
    assert operators_of(assert_agrees(single("PRelu", data, {"slope": values}, opset))) == ["LeakyReLU"]


@pytest.mark.parametrize("slope", [(4,), (2, 3, 4), (3, 4), (2, 1, 1)])
@pytest.mark.parametrize("constant", [True, False])
def test_slopes_of_elements(slope: tuple[int, ...], constant: bool) -> None:
    values = np.random.default_rng(2).standard_normal(slope).astype(np.float32)
    if constant:
        graph = assert_agrees(single("PRelu", (2, 3, 4), {"slope": values}))
    else:
        node = helper.make_node("PRelu", ["x", "slope"], ["y"])
        graph = assert_agrees(make_model([node], {"x": (2, 3, 4), "slope": slope}))
    assert operators_of(graph) == ["relu", "_mul_scalar", "relu", "broadcast_mul", "broadcast_sub"]


@pytest.mark.parametrize("opset", OPSETS)
def test_dropout_is_inference(opset: int) -> None:
    if opset < 12:
        model = single("Dropout", SHAPE, opset=opset, ratio=0.25)
    else:
        model = single("Dropout", SHAPE, {"ratio": np.float32(0.25)}, opset)
    graph = assert_agrees(model)
    assert operators_of(graph) == ["Dropout"]
    assert graph.outputs[0].operator.p == 0.25


def test_dropout_in_training_is_refused() -> None:
    model = single("Dropout", SHAPE, {"ratio": np.float32(0.25), "training": np.bool_(True)})
    with pytest.raises(UnsupportedOperatorError, match="training_mode is true"):
        from_onnx(model)


def test_the_mask_of_dropout_is_ones() -> None:
    nodes = [helper.make_node("Dropout", ["x"], ["y", "mask"]), helper.make_node("Cast", ["mask"], ["z"], to=1)]
    assert_agrees(make_model(nodes, {"x": (2, 3)}, ["y", "z"]))


def test_the_second_output_of_an_operator_that_gives_none_is_refused() -> None:
    node = helper.make_node("MaxPool", ["x"], ["y", "places"], name="pool", kernel_shape=[2])
    with pytest.raises(UnsupportedOperatorError, match=r"pool \(MaxPool\): output places is used"):
        from_onnx(make_model([node], {"x": (1, 1, 4)}, ["y", "places"]))


@pytest.mark.parametrize("target", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_casts_between_floats_are_nothing(target: int) -> None:
    nodes = [helper.make_node("Cast", ["x"], ["t"], to=target), helper.make_node("Cast", ["t"], ["y"], to=1)]
    assert operators_of(assert_agrees(make_model(nodes, {"x": SHAPE}))) == ["_copy", "_copy"]


def test_cast_of_integer_data() -> None:
    model = make_model([helper.make_node("Cast", ["x"], ["y"], to=1)], {"x": (2, 3)}, dtypes={"x": TensorProto.UINT8})
    assert operators_of(assert_agrees(model)) == ["Cast"]


@pytest.mark.parametrize(
    ("target", "operators"),
    [(TensorProto.INT64, ["Cast"]), (TensorProto.INT8, ["Cast"]), (TensorProto.BOOL, ["sign", "abs"])],
)
def test_casts_of_floats_truncate(target: int, operators: list[str]) -> None:
    """To bool they are 1 where they are not 0."""
    model = make_model([helper.make_node("Cast", ["x"], ["y"], to=target)], {"x": (6,)}, dtypes={"y": target})
    graph = assert_agrees(model, {"x": np.array([-2.7, -0.5, 0, 0.5, 1.9, 100], np.float32)})
    assert operators_of(graph) == operators


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.BOOL])
@pytest.mark.parametrize("known", [True, False])
def test_casts_to_what_another_value_is(kind: int, known: bool) -> None:
    like = np.ones(1, helper.tensor_dtype_to_np_dtype(kind))
    node = helper.make_node("CastLike", ["x", "like"], ["y"])
    inputs = {"x": (6,)} if known else {"x": (6,), "like": (1,)}
    model = make_model([node], inputs, ["y"], {"like": like} if known else None, dtypes={"y": kind, "like": kind})
    feeds = {"x": np.array([-2.7, -0.5, 0, 0.5, 1.9, 100], np.float32)} | ({} if known else {"like": like})
    assert_agrees(model, feeds)


def test_casts_to_text_are_refused() -> None:
    model = make_model([helper.make_node("Cast", ["x"], ["y"], to=8)], {"x": (2,)}, dtypes={"y": TensorProto.STRING})
    with pytest.raises(UnsupportedOperatorError, match="attribute to is STRING"):
        from_onnx(model)
