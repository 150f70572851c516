"""Reshapes, slices, pads and other moves of ONNX, against ONNX Runtime; and the batch left free by them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_models import OPSETS, assert_agrees, make_model, operators_of, run_reference, single

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.onnx import from_onnx
from mrt.symbol.rebatch import Rebatch

MAX, MIN = 2**63 - 1, -(2**63)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("target", [(2, 12), (-1, 4), (0, -1), (0, 3, 2, 2), (24,), (2, 3, 4), (4, 6)])
def test_reshape(opset: int, target: tuple[int, ...]) -> None:
    assert_agrees(single("Reshape", (2, 3, 4), {"shape": ints(*target)}, opset))


@pytest.mark.parametrize(
    ("shape", "target", "written"),
    [
        ((1, 3, 4), (1, 4, 3), (0, 4, 3)),
        ((1, 3, 4), (-1, 6, 2), (0, 6, 2)),
        ((1, 3, 4), (3, 4), (3, 4)),
        ((3, 4), (1, 3, 4), (1, 3, 4)),
        ((2, 3, 4), (4, -1), (4, 6)),
    ],
)
def test_a_reshape_that_keeps_the_first_axis_copies_it(
    shape: tuple[int, ...], target: tuple[int, ...], written: tuple[int, ...]
) -> None:
    (symbol,) = assert_agrees(single("Reshape", shape, {"shape": ints(*target)})).outputs
    assert symbol.op == "Reshape"
    assert symbol.operator.shape == written


def test_a_reshape_to_rows_is_a_flatten() -> None:
    assert operators_of(assert_agrees(single("Reshape", (1, 3, 4), {"shape": ints(1, -1)}))) == ["Flatten"]


@pytest.mark.parametrize("target", [(5, 5), (-1, -1), (-1, 5), (0, 0, 0, 0), (-2, 12)])
def test_reshape_that_does_not_fit(target: tuple[int, ...]) -> None:
    with pytest.raises(GraphError, match=r"y \(Reshape\)"):
        from_onnx(single("Reshape", (2, 3, 4), {"shape": ints(*target)}))


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -2])
def test_flatten(axis: int) -> None:
    assert_agrees(single("Flatten", (2, 3, 4), axis=axis))


def test_flatten_of_rows_is_flatten() -> None:
    assert operators_of(assert_agrees(single("Flatten", (2, 3, 4, 5)))) == ["Flatten"]


@pytest.mark.parametrize("perm", [None, (0, 2, 1), (2, 0, 1)])
def test_transpose(perm: tuple[int, ...] | None) -> None:
    attributes = {} if perm is None else {"perm": perm}
    assert operators_of(assert_agrees(single("Transpose", (2, 3, 4), **attributes))) == ["transpose"]


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("axes", [(0,), (1, 3), (-1,), (4, 0)])
def test_unsqueeze(opset: int, axes: tuple[int, ...]) -> None:
    if opset < 11:
        axes = tuple(axis % (3 + len(axes)) for axis in axes)
    if opset < 13:
        model = single("Unsqueeze", (2, 3, 4), opset=opset, axes=axes)
    else:
        model = single("Unsqueeze", (2, 3, 4), {"axes": ints(*axes)}, opset)
    assert set(operators_of(assert_agrees(model))) == {"expand_dims"}


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("axes", [None, (0,), (2, 4)])
def test_squeeze(opset: int, axes: tuple[int, ...] | None) -> None:
    if axes is None or opset < 13:
        model = single("Squeeze", (1, 3, 1, 4, 1), opset=opset, **({} if axes is None else {"axes": axes}))
    else:
        model = single("Squeeze", (1, 3, 1, 4, 1), {"axes": ints(*axes)}, opset)
    assert operators_of(assert_agrees(model)) == ["squeeze"]


@pytest.mark.parametrize("shapes", [[(2, 3), (2, 4)], [(2, 3), (2, 1), (2, 5)], [(2, 3)]])
@pytest.mark.parametrize("axis", [1, -1])
def test_concat(shapes: list[tuple[int, ...]], axis: int) -> None:
    inputs = {f"x{index}": shape for index, shape in enumerate(shapes)}
    assert_agrees(make_model([helper.make_node("Concat", list(inputs), ["y"], axis=axis)], inputs))


def test_concat_with_a_constant() -> None:
    model = single("Concat", (1, 2, 3), {"c": np.ones((1, 1, 3), np.float32)}, inputs=["c", "x"], axis=1)
    assert operators_of(assert_agrees(model)) == ["Concat"]


@pytest.mark.parametrize(
    ("target", "records"),
    [((2, 3, 4), ["_copy"]), ((1,), ["_copy"]), ((5, 2, 3, 4), ["broadcast_mul"]), ((2, 1, 1), ["_copy"])],
)
def test_expand(target: tuple[int, ...], records: list[str]) -> None:
    assert operators_of(assert_agrees(single("Expand", (2, 3, 4), {"shape": ints(*target)}))) == records


def test_expand_of_an_axis_of_one() -> None:
    assert operators_of(assert_agrees(single("Expand", (1, 1, 4), {"shape": ints(1, 3, 4)}))) == ["broadcast_mul"]


SLICES = [
    ([0], [2], [1], None),
    ([1], [MAX], [2], [1]),
    ([0, 1], [MAX, -1], [0, 2], [1, 1]),
    ([0, 0], [MAX, MAX], [1, 2], [2, 3]),
    ([-1], [MIN], [1], [-1]),
    ([-1, 3], [MIN + 1, 0], [1, 2], [-1, -2]),
    ([-2], [-1], [-1], None),
    ([0], [MAX], [1], None),
    ([1, 0, 2], [2, 3, 4], None, None),
    ([100], [0], [2], [-1]),
]


@pytest.mark.parametrize(("starts", "ends", "axes", "steps"), SLICES)
@pytest.mark.parametrize("opset", OPSETS)
def test_slice(opset: int, starts: list[int], ends: list[int], axes: list[int] | None, steps: list[int] | None) -> None:
    if opset < 10:
        if steps is not None and set(steps) != {1}:
            pytest.skip("steps exist from opset 10 on")
        attributes = {"starts": starts, "ends": ends} | ({} if axes is None else {"axes": axes})
        model = single("Slice", (2, 5, 4), opset=opset, **attributes)
    else:
        given = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
        constants = {name: ints(*values) for name, values in given.items() if values is not None}
        inputs = ["x", "starts", "ends", "axes" if axes else "", "steps" if steps else ""]
        model = single("Slice", (2, 5, 4), constants, opset, inputs)
    assert_agrees(model)


def test_whole_axes_are_not_written() -> None:
    model = single(
        "Slice", (1, 6, 4, 4), {"s": ints(0, 0, 0), "e": ints(1, MAX, MAX), "a": ints(0, 2, 3), "t": ints(1, 2, 2)}
    )
    (symbol,) = assert_agrees(model).outputs
    assert symbol.operator.begin == (None, None, 0, 0)
    assert symbol.operator.end[:2] == (None, None)


def test_an_empty_slice_is_refused() -> None:
    with pytest.raises(UnsupportedOperatorError, match="the result on axis 1 is empty"):
        from_onnx(single("Slice", (2, 3), {"s": ints(2), "e": ints(1), "a": ints(1)}))


@pytest.mark.parametrize("opset", [9, 11, 13, 18, 21])
@pytest.mark.parametrize(("axis", "sizes"), [(1, None), (1, (1, 2, 3)), (-2, (2, 2, 2))])
def test_split(opset: int, axis: int, sizes: tuple[int, ...] | None) -> None:
    if opset < 11:
        axis %= 3
    attributes: dict[str, object] = {"axis": axis}
    constants = {}
    if sizes is not None and opset < 13:
        attributes["split"] = sizes
    elif sizes is not None:
        constants["split"] = ints(*sizes)
    elif opset >= 18:
        attributes["num_outputs"] = 3
    node = helper.make_node("Split", ["x", *constants], ["p", "q", "r"], **attributes)
    model = make_model([node], {"x": (2, 6, 4)}, ["r", "p", "q"], constants, opset)
    assert operators_of(assert_agrees(model)) == ["slice_axis"] * 3


def test_split_into_unequal_parts_and_of_one_part() -> None:
    node = helper.make_node("Split", ["x"], ["p", "q", "r"], axis=1, num_outputs=3)
    assert_agrees(make_model([node], {"x": (2, 7)}, ["p", "q", "r"], opset=18))
    node = helper.make_node("Split", ["x"], ["p"], axis=1, num_outputs=1)
    assert operators_of(assert_agrees(make_model([node], {"x": (2, 7)}, ["p"], opset=18))) == ["_copy"]


def test_an_unused_part_of_a_split() -> None:
    node = helper.make_node("Split", ["x"], ["p", "q"], axis=1)
    assert operators_of(assert_agrees(make_model([node], {"x": (2, 6)}, ["q"], opset=13))) == ["slice_axis"]


@pytest.mark.parametrize(
    ("indices", "axis", "records"),
    [
        (0, 1, ["slice_axis", "squeeze"]),
        (-1, 2, ["slice_axis", "squeeze"]),
        ([1, 2], 1, ["slice_axis"]),
        ([2, 0, -1], 1, ["take"]),
        ([[0, 1], [2, 2]], 1, ["take"]),
        ([[0, 1], [1, 1]], 0, ["take"]),
        ([0, 1, 2], 1, ["_copy"]),
        ([[0, 1]], 1, ["slice_axis", "Reshape"]),
        ([[0, 1], [2, 3]], 2, ["Reshape"]),
        ([[0], [1], [2]], 1, ["Reshape"]),
    ],
)
def test_gather_of_constant_indices(indices: object, axis: int, records: list[str]) -> None:
    model = single("Gather", (2, 3, 4), {"i": np.array(indices, np.int64)}, axis=axis)
    assert operators_of(assert_agrees(model)) == records


@pytest.mark.parametrize("shape", [(1, 6, 1, 1), (1, 2, 3), (3, 2)], ids=str)
def test_a_view_of_all_elements_in_order_keeps_the_batch(shape: tuple[int, ...]) -> None:
    """PyTorch's exporter flattens what it takes a view by strides of, and gathers places that it computes."""
    nodes = [helper.make_node("Reshape", ["x", "flat"], ["f"]), helper.make_node("Gather", ["f", "places"], ["y"])]
    places = np.arange(6, dtype=np.int64).reshape(shape)
    graph = assert_agrees(make_model(nodes, {"x": (1, 6, 1, 1)}, constants={"flat": ints(-1), "places": places}))
    assert "take" not in operators_of(graph)
    if shape[0] == 1:
        assert Rebatch(4)(graph).outputs[0].shape == (4, *shape[1:])


@pytest.mark.parametrize("axis", [0, 1])
def test_gather_of_computed_indices(axis: int) -> None:
    table = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    node = helper.make_node("Gather", ["table", "i"], ["y"], axis=axis)
    model = make_model([node], {"i": (2, 3)}, constants={"table": table}, dtypes={"i": TensorProto.INT64})
    indices = np.array([[0, 4, -1], [-5, 2, 3]])
    assert operators_of(assert_agrees(model, {"i": indices})) == ["take"]


def test_gather_outside_names_the_node() -> None:
    with pytest.raises(GraphError, match=r"y \(Gather\): indices are no integers in \[-3, 3\)"):
        from_onnx(single("Gather", (2, 3), {"i": ints(0, 3)}, axis=1))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
@pytest.mark.parametrize("opset", [9, 11, 13, 18, 21])
@pytest.mark.parametrize("pads", [(0, 0, 1, 2, 0, 0, 0, 1), (0, 0, 0, 1, 0, 0, 2, 0)])
def test_pad(mode: str, opset: int, pads: tuple[int, ...]) -> None:
    if opset < 11:
        model = single("Pad", (1, 2, 4, 5), opset=opset, mode=mode, pads=pads, value=0.5)
    else:
        constants = {"pads": ints(*pads), "value": np.float32(0.5)}
        model = single(
            "Pad", (1, 2, 4, 5), constants if mode == "constant" else {"pads": ints(*pads)}, opset, mode=mode
        )
    assert operators_of(assert_agrees(model)) == ["Pad"]


def test_pad_of_channels_and_named_axes() -> None:
    assert_agrees(single("Pad", (1, 2, 3, 4), {"pads": ints(0, 1, 0, 0, 0, 2, 0, 0)}))
    constants = {"pads": ints(1, 0, 2, 3), "axes": ints(-1, 1)}
    assert_agrees(single("Pad", (1, 2, 3, 4), constants, 18, ["x", "pads", "", "axes"]))


@pytest.mark.parametrize(
    ("pads", "records"),
    [((0, -1, 0, 0), ["slice_axis"]), ((0, -1, 0, 2), ["slice_axis", "Pad"]), ((0, 0, 0, 0), ["_copy"])],
)
def test_pad_that_crops(pads: tuple[int, ...], records: list[str]) -> None:
    assert operators_of(assert_agrees(single("Pad", (2, 5), {"pads": ints(*pads)}))) == records


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [(-1, 2, 0, -1), (0, -2, 0, 3), (0, -1, 0, -1)])
def test_pad_crops_before_it_repeats(mode: str, pads: tuple[int, ...]) -> None:
    assert_agrees(single("Pad", (3, 6), {"pads": ints(*pads)}, 19, mode=mode))


@pytest.mark.parametrize("pads", [(0, 0, 0, -5), (0, 0, 0, -6), (0, -3, 0, -2)])
def test_pad_that_crops_everything(pads: tuple[int, ...]) -> None:
    with pytest.raises(UnsupportedOperatorError, match="the result on axis 1 is empty"):
        from_onnx(single("Pad", (2, 5), {"pads": ints(*pads)}))


@pytest.mark.parametrize("pads", [(0, 1, 0, 0, 2, 0), (0, 3, 4, 0, 1, 0), (0, 7, 0, 0, 9, 5), (1, 0, 0, 1, 0, 0)])
def test_pad_from_the_other_end(pads: tuple[int, ...]) -> None:
    model = single("Pad", (2, 3, 5), {"pads": ints(*pads)}, 19, mode="wrap")
    assert set(operators_of(assert_agrees(model, run=run_reference))) == {"take"}


def test_pad_of_uncovered_modes() -> None:
    with pytest.raises(UnsupportedOperatorError, match="mode is mirror; constant, edge, reflect or wrap is needed"):
        from_onnx(single("Pad", (2, 5), {"pads": ints(0, 1, 0, 1)}, 19, mode="mirror"))


@pytest.mark.parametrize("upper", [None, 0, 1])
@pytest.mark.parametrize("k", [None, 0, 1, -2, 7, -7])
def test_triangles(upper: int | None, k: int | None) -> None:
    attributes = {} if upper is None else {"upper": upper}
    constants = {} if k is None else {"k": np.int64(k)}
    assert operators_of(assert_agrees(single("Trilu", (2, 3, 5), constants, **attributes))) == ["broadcast_mul"]


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumulated_sums(axis: int, exclusive: int, reverse: int) -> None:
    constants = {"axis": np.int64(axis)}
    model = single("CumSum", (2, 3, 4), constants, exclusive=exclusive, reverse=reverse)
    assert "FullyConnected" in operators_of(assert_agrees(model))


@pytest.mark.parametrize("k", [None, 1, -2])
def test_a_matrix_like_another(k: int | None) -> None:
    attributes = {} if k is None else {"k": k}
    nodes = [helper.make_node("EyeLike", ["x"], ["e"], **attributes), helper.make_node("Mul", ["x", "e"], ["y"])]
    assert operators_of(assert_agrees(make_model(nodes, {"x": (3, 4)}))) == ["broadcast_mul"]
