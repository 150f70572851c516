"""The scale plan: which tensors follow the options of which."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.calibration import Range
from mrt.quantization.expand import expand_graph
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.plan.make import make_plan
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Graph, Operator
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.transform import Flatten, Reshape, SliceAxis, Transpose
from tests.quantization.networks import chain, quantize_and_run, random_samples

DENSE = (FullyConnected(num_hidden=2, no_bias=True), [np.ones((2, 12))])
MOVED = chain((1, 3, 4), (Transpose(axes=(0, 2, 1)), []), (Flatten(), []), DENSE)
"""x, transposed to s0, flattened to s1, read by s2."""
RANGE = Range(-2.0, 3.0)


def config_of(**sections: object) -> QuantizationConfig:
    return QuantizationConfig.model_validate(sections)


def plan_of(config: QuantizationConfig, graph: Graph = MOVED, **ranges: Range) -> Plan:
    names = [symbol.name for symbol in (*graph.inputs, *graph.symbols) if graph.value(symbol) is None]
    return make_plan(graph, {name: ranges.get(name, RANGE) for name in names}, config)


@pytest.mark.parametrize("option", [{"bits": 4}, {"quantizer": "affine"}, {"quantizer": "affine", "storage": "signed"}])
def test_a_moved_tensor_has_the_quantizer_of_its_source(option: dict[str, object]) -> None:
    plan = plan_of(config_of(overrides={"x": {"activation": option}}))
    assert plan.tensors["x"].own == plan.tensors["s0"].own == plan.tensors["s1"].own
    assert plan.tensors["x"].own != plan_of(config_of()).tensors["x"].own
    assert plan.tensors["s2"].own == plan_of(config_of()).tensors["s2"].own


def test_an_override_of_the_moved_tensor_decides() -> None:
    overrides = {"x": {"activation": {"bits": 4, "quantizer": "affine"}}, "s1": {"activation": {"bits": 6}}}
    plan = plan_of(config_of(overrides=overrides))
    assert (plan.tensors["s0"].own.lo, plan.tensors["s0"].own.hi) == (0, 15)
    assert (plan.tensors["s1"].own.lo, plan.tensors["s1"].own.hi) == (0, 63)  # affine like x, 6 bits of its own


@pytest.mark.parametrize(
    ("operator", "range", "hi"), [(SliceAxis(axis=2, begin=0, end=2), Range(-0.5, 0.25), 7), (Relu(), RANGE, 15)]
)
def test_a_part_has_the_options_of_its_source_and_a_scale_of_its_own(operator: Operator, range: Range, hi: int) -> None:
    graph = chain((1, 3, 4), (operator, []))
    target = plan_of(config_of(overrides={"x": {"activation": {"bits": 4}}}), graph, s0=range).tensors["s0"].own
    assert target.hi == hi
    assert target.scale == pytest.approx(max(-range.lo, range.hi) / hi)


def test_given_integers_that_are_moved_stay_as_they_are() -> None:
    pixels = {"x": {"scale": 0.02, "zero_point": 100, "dtype": "uint8"}}
    plan = plan_of(config_of(inputs=pixels))
    assert plan.tensors["s1"].own == plan.tensors["x"].own and plan.tensors["x"].own.pinned
    assert (
        plan_of(config_of(inputs=pixels), s1=Range(-1.0, 1.0)).tensors["s1"].own
        == plan_of(config_of(), s1=Range(-1.0, 1.0)).tensors["s1"].own
    )
    override = {"s1": {"activation": {"bits": 8}}}
    assert (
        plan_of(config_of(inputs=pixels, overrides=override)).tensors["s1"].own
        == plan_of(config_of()).tensors["s1"].own
    )
    names = ("x", "s0", "s1", "s2")
    integer = expand_graph(MOVED, dict.fromkeys(names, RANGE), config_of(inputs=pixels)).graph
    values = np.random.default_rng(0).integers(0, 256, (1, 3, 4))
    moved = dict(integer.walk({"x": values}))
    found = next(value for symbol, value in moved.items() if symbol.op == "Flatten")
    np.testing.assert_array_equal(found, values.transpose(0, 2, 1).reshape(1, 12))


def test_long_chains_are_followed() -> None:
    steps = [(Reshape(shape=(0, -1)), []), (Reshape(shape=(0, 3, 4)), [])] * 1500
    plan = plan_of(config_of(overrides={"x": {"activation": {"bits": 3}}}), chain((1, 3, 4), *steps))
    assert plan.tensors["s2999"].own.hi == 3


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_a_bias_counts_up_to_what_the_coarsest_channel_group_holds(quantizer: str) -> None:
    """The bias of channel 0 is many times its data and lies far beyond what channel 1 holds."""
    graph = chain(
        (1, 2, 4, 4),
        (Convolution(kernel=(1, 1), num_filter=2, no_bias=True), [np.diag([0.3, 0.01]).reshape(2, 2, 1, 1)]),
        (BroadcastAdd(), [np.array([5.0, 0.0]).reshape(1, 2, 1, 1)]),
        (Relu(), []),
        (Convolution(kernel=(1, 1), num_filter=1, no_bias=True), [np.ones((1, 2, 1, 1))]),
    )
    config = config_of(activation={"granularity": {"channel": 1}, "quantizer": quantizer})
    assert quantize_and_run(graph, random_samples(graph), config).relative_error < 0.02
