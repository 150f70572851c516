"""Kernels that differ in their limits only are one, and give the same integers."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import assert_same_values, op
from layers import assembly

from mrt.backend import TvmRunner, build_module
from mrt.backend.operators.clip_to import ClipTo
from mrt.backend.rewrites.clip_limits_as_parameters import WORTH, ClipLimitsAsParameters
from mrt.symbol import Graph, GraphBuilder, Interval, TensorType


def clips(dtype: str, *limits: tuple[float, float], cast: str = "", shape: tuple[int, ...] = (2, 5, 3)) -> Graph:
    """Clips of one tensor, each of which is cast if a dtype is given."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType(shape, dtype))
    outputs = [builder.apply(op("clip", a_min=lo, a_max=hi), [x]) for lo, hi in limits]
    outputs = [builder.apply(op("Cast", dtype=cast), [each]) for each in outputs] if cast else outputs
    return builder.graph(outputs)


@pytest.mark.parametrize("dtype", ["int16", "int32"])
def test_limits_of_any_kind_give_the_same_integers(dtype: str) -> None:
    info = np.iinfo(dtype)
    ends = [(-7, 9), (9, 9), (-7.5, 2**40), (-(2**40), 300), (info.min + 1, info.max - 1), (-5, info.max), (0, 77)]
    graph = clips(dtype, *ends)
    found = ClipLimitsAsParameters()(graph)
    assert {symbol.op for symbol in found.operators} == {"clip_to"}
    assert [symbol.name for symbol in found.outputs] == [symbol.name for symbol in graph.outputs]
    x = np.random.default_rng(0).integers(info.min, info.max, (2, 5, 3), dtype, endpoint=True)
    x.flat[:9] = info.min, info.max, -8, -7, 0, 8, 9, 10, 300
    expected = graph.evaluate({"x": x})
    assert_same_values(found, found.evaluate({"x": x}), expected)
    assert_same_values(graph, TvmRunner().prepare(graph)({"x": x}), expected)


@pytest.mark.parametrize(
    "graph",
    [
        clips("int16", (0, 255), (-127, 127), (-32768, 32767), (-(2.0**31), 0)),
        clips("int32", (-127, 127), (0, 255), cast="int16"),
        clips("int32", (-127, 127), (-128, 127), cast="int8"),
        clips("int32", *((-6, i) for i in range(1, WORTH)), cast="int8"),
        clips("int8", (-6, 9)),
        clips("float32", (-6, 9)),
    ],
    ids=["common limits", "common limits of words", "those of bytes", "few of bytes", "bytes", "floats"],
)
def test_other_clips_stay(graph: Graph) -> None:
    assert {symbol.op for symbol in ClipLimitsAsParameters()(graph).operators} <= {"clip", "Cast"}


def layers(*limits: int) -> Graph:
    """Layers of the same shape whose sums are clipped to words before they are joined."""
    builder, random = GraphBuilder(), np.random.default_rng(1)
    x = builder.input("x", TensorType((1, 16, 6, 6), "int8"))
    for limit in limits:
        weight = builder.parameter("weight", random.integers(-127, 128, (16, 16, 3, 3), "int8"))
        made = builder.apply(op("Convolution", kernel=(3, 3), pad=(1, 1), num_filter=16, no_bias=True), [x, weight])
        made = builder.apply(op("right_shift"), [made, builder.parameter("shift", np.int8([4]).reshape(1, 1, 1, 1))])
        made = builder.apply(op("Cast", dtype="int16"), [builder.apply(op("clip", a_min=-limit, a_max=limit), [made])])
        made = builder.apply(op("elemwise_add"), [made, x])
        x = builder.apply(op("Cast", dtype="int8"), [builder.apply(op("clip", a_min=-127, a_max=127), [made])])
    return builder.graph([x])


def test_layers_with_limits_of_their_own_share_a_kernel() -> None:
    alike, apart = layers(900, 900, 900), layers(901, 1234, 567)
    assert len(build_module(apart).functions) == len(build_module(alike).functions)
    feeds = {"x": np.random.default_rng(2).integers(-128, 128, (1, 16, 6, 6), "int8")}
    assert_same_values(apart, TvmRunner().prepare(apart)(feeds), apart.evaluate(feeds))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("wide", ["int16", "int32"])
def test_what_is_stored_in_bytes_gives_the_same_integers(wide: str, dtype: str) -> None:
    """At all values around the limits of the clips and of the bytes, in whole vectors and beside them."""
    info = np.iinfo(dtype)
    ends = [(info.min + i % 3, info.max - i) for i in range(1, WORTH + 1)]
    graph = clips(wide, *ends, cast=dtype, shape=(1, 700))
    found = ClipLimitsAsParameters()(graph)
    assert {(s.op, s.operator.stored) for s in found.operators if s.op != "Cast"} == {("clip_to", dtype)}
    x = np.concatenate([np.arange(-300, 300), np.linspace(np.iinfo(wide).min, np.iinfo(wide).max, 100)])
    feeds = {"x": x.reshape(1, 700).astype(wide)}
    assert_same_values(found, found.evaluate(feeds), graph.evaluate(feeds))
    assert_same_values(graph, TvmRunner().prepare(graph)(feeds), graph.evaluate(feeds))
    kernels = [function.name_hint.rstrip("0123456789") for function in build_module(graph).get_global_vars()]
    assert len(kernels) < WORTH and "region_clip_to" in kernels and "region_clip" not in kernels


def test_the_conversion_to_bytes_still_saturates() -> None:
    """Without the limits of bytes each vector of words would be shuffled."""
    graph = clips("int32", *((-100, i) for i in range(1, WORTH + 1)), cast="int8", shape=(1, 1024))
    code = assembly(graph, {"mcpu": "x86-64-v3", "threads": 1})
    assert "vpacksswb" in code and "vpshufb" not in code


def test_a_clip_that_is_read_wide_too_stays() -> None:
    """Its limits are those of the conversion to bytes for one reader only."""
    graph = clips("int32", *((-6, i) for i in range(1, WORTH + 1)), cast="int8")
    first = graph.outputs[0]
    wide = GraphBuilder(reserved=graph.by_name).apply(op("negative"), first.inputs, "wide")
    found = ClipLimitsAsParameters()(Graph(graph.inputs, (*graph.outputs, wide)))
    assert [symbol.name for symbol in found.operators if symbol.op == "clip"] == [first.inputs[0].name]


@pytest.mark.parametrize(("least", "most"), [(True, True), (True, False), (False, True)])
def test_bounds_hold_what_is_clipped(least: bool, most: bool) -> None:
    clip, limits = ClipTo(least, most), [np.array([[-3]])] * least + [np.array([[5]])] * most
    x = np.arange(-9, 10).reshape(1, -1)
    values = clip.evaluate(x, *limits)
    np.testing.assert_array_equal(values, np.clip(x, -3 if least else -9, 5 if most else 9))
    found = clip.bounds(Interval.of(-9, 9, x.shape), *map(Interval.constant, limits))
    assert (found.min, found.max) == (values.min(), values.max())
