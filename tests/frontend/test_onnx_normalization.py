"""Normalisations and reductions of ONNX, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx_models import OPSETS, assert_agrees, make_model, operators_of, run_reference, single

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.onnx import from_onnx

RNG = np.random.default_rng(5)


def array(*shape: int) -> np.ndarray:
    return (RNG.random(shape) + 0.5).astype(np.float32)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 5), (1, 3, 2, 2, 2)])
@pytest.mark.parametrize("epsilon", [None, 0.1])
def test_batch_normalization(opset: int, shape: tuple[int, ...], epsilon: float | None) -> None:
    attributes = {} if epsilon is None else {"epsilon": epsilon}
    constants = {name: array(3) for name in ("gamma", "beta", "mean", "variance")}
    graph = assert_agrees(single("BatchNormalization", shape, constants, opset, **attributes))
    assert operators_of(graph) == ["BatchNorm"]


def test_batch_normalization_in_training_is_refused() -> None:
    constants = {name: array(3) for name in ("gamma", "beta", "mean", "variance")}
    with pytest.raises(UnsupportedOperatorError, match="training_mode is 1"):
        from_onnx(single("BatchNormalization", (2, 3), constants, training_mode=1))


@pytest.mark.parametrize("moments", [[], ["mean", "variance"]])
def test_weights_that_batch_normalization_standardises(moments: list[str]) -> None:
    """As networks without normalisation of data have them: in training mode, of constant data."""
    standardise = helper.make_node(
        "BatchNormalization",
        ["raw", "gamma", "beta", "m", "v"],
        ["w", "mean", "variance"],
        training_mode=1,
        epsilon=1e-3,
        momentum=0.25,
    )
    constants = {"raw": array(1, 6, 4), **{name: array(6) for name in ("gamma", "beta", "m", "v")}}
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    assert_agrees(make_model([standardise, product], {"x": (1, 2, 6)}, ["y", *moments], constants))


@pytest.mark.parametrize("axis", [-1, 2, 1, -2, 0])
@pytest.mark.parametrize("with_bias", [True, False])
def test_layer_normalization(axis: int, with_bias: bool) -> None:
    shape = (2, 3, 4)
    constants = {"gamma": array(*shape[axis:])}
    if with_bias:
        constants["beta"] = array(*shape[axis:])
    graph = assert_agrees(single("LayerNormalization", shape, constants, axis=axis, epsilon=0.01))
    if axis in (-1, 2):
        assert operators_of(graph) == ["LayerNorm"]


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("names", [["y", "mean"], ["y", "mean", "inverse"], ["y", "", "inverse"]])
def test_the_moments_of_layer_normalization(axis: int, names: list[str]) -> None:
    node = helper.make_node("LayerNormalization", ["x", "g"], names, axis=axis, epsilon=0.01)
    outputs = [name for name in names if name]
    assert_agrees(make_model([node], {"x": (2, 3, 4)}, outputs, {"g": array(*(2, 3, 4)[axis:])}))


def test_moments_that_nothing_reads_are_not_computed() -> None:
    node = helper.make_node("LayerNormalization", ["x", "g"], ["y", "mean", "inverse"])
    graph = from_onnx(make_model([node], {"x": (2, 3)}, ["y"], {"g": array(3)}))
    assert operators_of(graph) == ["LayerNorm"]


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("shape", [(2, 5), (2, 3, 4), (2, 3, 1, 1), (2, 3, 4, 2)])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
def test_softmax(op_type: str, opset: int, shape: tuple[int, ...], axis: int | None) -> None:
    attributes = {} if axis is None else {"axis": axis}
    assert_agrees(single(op_type, shape, opset=opset, **attributes))


def test_softmax_over_one_axis_stays_one_operator() -> None:
    assert operators_of(assert_agrees(single("Softmax", (2, 3, 1, 1), opset=9))) == ["softmax"]
    assert operators_of(assert_agrees(single("Softmax", (2, 3, 4), opset=13, axis=1))) == ["softmax"]
    assert operators_of(assert_agrees(single("LogSoftmax", (2, 3, 4), opset=13, axis=1))) == ["log_softmax"]


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMean", "ReduceMax"])
@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("axes", [None, (1,), (-1,), (2, 1), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [None, 0, 1])
def test_reductions(op_type: str, opset: int, axes: tuple[int, ...] | None, keepdims: int | None) -> None:
    attributes: dict[str, object] = {} if keepdims is None else {"keepdims": keepdims}
    axes_are_input = opset >= (13 if op_type == "ReduceSum" else 18)
    if axes is not None and not axes_are_input:
        attributes["axes"] = axes
    constants = {"axes": np.array(axes)} if axes is not None and axes_are_input else {}
    records = operators_of(assert_agrees(single(op_type, (2, 3, 4), constants, opset, **attributes)))
    is_scalar = keepdims == 0 and axes in (None, (0, 1, 2))
    assert (
        records == [{"ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max"}[op_type]] + ["Reshape"] * is_scalar
    )


MADE_OF_SEVERAL = ["L1", "L2", "SumSquare", "LogSum", "LogSumExp", "Prod", "Min"]


@pytest.mark.parametrize("kind", MADE_OF_SEVERAL)
@pytest.mark.parametrize("opset", [9, 13, 18, 20])
@pytest.mark.parametrize("axes", [None, (1,), (-1,), (2, 1), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [None, 0])
def test_reductions_made_of_several(kind: str, opset: int, axes: tuple[int, ...] | None, keepdims: int | None) -> None:
    attributes: dict[str, object] = {} if keepdims is None else {"keepdims": keepdims}
    constants = {"axes": np.array(axes)} if axes is not None and opset >= 18 else {}
    if axes is not None and opset < 18:
        attributes["axes"] = axes
    feeds = {"x": array(2, 3, 5)}
    assert_agrees(single(f"Reduce{kind}", (2, 3, 5), constants, opset, **attributes), feeds)


def test_powers_of_large_numbers_do_not_overflow() -> None:
    feeds = {"x": np.array([[-1000, 0, 1000], [500, 501, 502]], np.float32)}
    assert_agrees(single("ReduceLogSumExp", (2, 3), opset=13, axes=[1]), feeds)


@pytest.mark.parametrize("kind", MADE_OF_SEVERAL)
def test_reductions_over_no_axes(kind: str) -> None:
    """Functions of the elements are still applied."""
    feeds = {"x": array(2, 3)}
    assert_agrees(single(f"Reduce{kind}", (2, 3), {}, 20, noop_with_empty_axes=1), feeds, run=run_reference)


@pytest.mark.parametrize("noop", [0, 1])
@pytest.mark.parametrize("given", [True, False])
def test_reduction_over_empty_axes(noop: int, given: bool) -> None:
    constants = {"axes": np.array([], np.int64)} if given else {}
    model = single("ReduceSum", (2, 3, 4), constants, 17, noop_with_empty_axes=noop)
    graph = assert_agrees(model, run=run_reference)
    assert operators_of(graph) == ["_copy" if noop else "sum"]


def test_an_axis_outside_names_the_node() -> None:
    with pytest.raises(GraphError, match=r"y \(ReduceMean\): axis 3 is outside a tensor of rank 3"):
        from_onnx(single("ReduceMean", (2, 3, 4), axes=[3]))
