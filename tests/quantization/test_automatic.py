"""Granularity auto: splits what gains, as far as the budget goes, and says so."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from mrt.quantization.algorithms.channel_choice import resolve_granularity
from mrt.quantization.expand import expand_graph
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.plan.make import make_plan
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Array, Graph, Operator
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.transform import Flatten
from tests.quantization.networks import chain, observe, quantize_and_run, random_samples

Step = tuple[Operator, list[Array]]
SHAPE = (1, 8, 6, 6)


def config_of(room: float = 1e9, **overrides: object) -> QuantizationConfig:
    return QuantizationConfig.model_validate(
        {"activation": {"granularity": "auto"}, "max_extra_operations": room, "overrides": overrides}
    )


def conv(filters: int = 8, channels: int = 8, groups: int = 1, kernel: int = 1) -> Step:
    weight = np.random.default_rng(2).standard_normal((filters, channels // groups, kernel, kernel))
    return Convolution((kernel,) * 2, filters, num_group=groups, no_bias=True), [weight]


def times(*constants: float) -> Step:
    return BroadcastMul(), [np.asarray(constants).reshape(1, -1, 1, 1)]


SPREAD = times(*np.exp2(-np.arange(8.0)))
EVEN = times(*(1 + 0.01 * np.arange(8.0)))


def plan_of(graph: Graph, config: QuantizationConfig) -> tuple[Plan, tuple[str, ...]]:
    ranges = observe(graph, random_samples(graph))
    resolved, notes = resolve_granularity(graph, ranges, config)
    return make_plan(graph, ranges, resolved), notes


def steps_of(plan: Plan) -> dict[str, int]:
    return {
        name: tensor.grouped.groups.step
        for name, tensor in plan.tensors.items()
        if tensor.grouped is not None and tensor.grouped.groups is not None
    }


def test_the_spread_tensor_is_split_and_no_other() -> None:
    graph = chain(SHAPE, EVEN, conv(), times(*np.repeat([1.0, 0.01], 4)), conv())
    plan, notes = plan_of(graph, config_of())
    assert set(steps_of(plan)) == {"s2"}
    (note,) = notes
    assert re.match(r"s2 \(broadcast_mul\): groups of [14] channels save \S+ dB of noise for \S+ % more oper", note)


def test_the_note_says_what_groups_gain_and_cost() -> None:
    """Two of eight channels at 1, the others at nothing beside it: a quarter of the noise, 6.0 dB."""
    graph = chain(SHAPE, times(1, 1, *(1e-3,) * 6), conv())
    ranges = observe(graph, random_samples(graph))
    ends = ranges["s0"].channels
    ranges["s0"] = replace(ranges["s0"], channels=((-1.0, 1.0),) * 2 + ends[2:])
    _, (note,) = resolve_granularity(graph, ranges, config_of())
    # Of 64 multiplications for each pixel, 4 groups add as many additions and factors for each of 8 outputs.
    assert note == "s0 (broadcast_mul): groups of 2 channels save 6.0 dB of noise for 1e+02 % more operations"


def test_without_a_budget_what_costs_is_left_and_what_does_not_is_split() -> None:
    """A depthwise convolution takes a scale for each channel and adds nothing."""
    graph = chain(SHAPE, SPREAD, conv(groups=8), SPREAD, conv())
    plan, notes = plan_of(graph, config_of(room=0))
    assert set(steps_of(plan)) == {"s0"}
    assert any(note.startswith("s2") and "beyond max_extra_operations" in note for note in notes)
    assert any(note.startswith("s0") and "for 0 % more operations" in note for note in notes)


@pytest.mark.parametrize("room", [0.0, 0.05, 0.3, 0.6, 1.0, 3.0])
def test_the_operations_that_are_added_stay_within_the_budget(room: float) -> None:
    """Counted in the integer graph: for every output of a sliced sum a factor and an addition for each slice."""
    graph = chain(SHAPE, SPREAD, conv(kernel=3), SPREAD, conv(16), times(*np.exp2(-np.arange(16.0) / 3)), conv(8, 16))
    ranges = observe(graph, random_samples(graph))
    integer = expand_graph(graph, ranges, config_of(room))
    sums = [symbol for symbol in integer.graph.operators if symbol.op == "add_n"]
    added = sum(2 * len(symbol.inputs) * symbol.type.size for symbol in sums)
    total = sum(s.type.size * s.inputs[1].type.size // s.shape[1] for s in graph.operators if s.op == "Convolution")
    assert added <= room * total
    assert bool(sums) == (room > 0)


def test_tensors_that_hold_the_same_integers_are_split_together() -> None:
    """Maxima and borders take the groups of what they read along; the layer behind them is what costs."""
    border: Step = (Pad((0, 0, 0, 0, 1, 1, 1, 1)), [])
    graph = chain(SHAPE, SPREAD, (Pooling((2, 2)), []), border, conv(kernel=3))
    plan, notes = plan_of(graph, config_of())
    assert len(notes) == 1 and notes[0].startswith("s0")
    assert steps_of(plan).keys() == {"s0", "s1", "s2"} and len(set(steps_of(plan).values())) == 1
    samples = random_samples(graph)
    integer = quantize_and_run(graph, samples, config_of()).integer
    assert sum(symbol.op == "clip" for symbol in integer.graph.operators) <= 2
    plan, (note,) = plan_of(graph, config_of(room=0))
    assert not steps_of(plan) and "beyond max_extra_operations" in note


def test_flattened_channels_keep_their_groups() -> None:
    weight = np.random.default_rng(2).standard_normal((4, 288))
    graph = chain(SHAPE, SPREAD, (Flatten(), []), (FullyConnected(4, no_bias=True), [weight]))
    integer = quantize_and_run(graph, random_samples(graph), config_of()).integer
    groups = len({float(scale) for scale in integer.scales["s1"].reshape(-1)})
    assert sum(symbol.op == "slice_axis" for symbol in integer.graph.operators) == groups > 1


@pytest.mark.parametrize("granularity", ["layer", {"channel": 8}, {"channel": 1}])
@pytest.mark.parametrize("pattern", ["s1", "s*"])
def test_overrides_win(granularity: object, pattern: str) -> None:
    graph = chain(SHAPE, SPREAD, (Relu(), []), conv())
    plan, notes = plan_of(graph, config_of(**{pattern: {"activation": {"granularity": granularity}}}))
    assert steps_of(plan) == ({} if granularity == "layer" else {"s1": granularity["channel"]}) and not notes


def test_a_tensor_that_follows_another_is_left_as_that_is_overridden() -> None:
    """relu keeps what it reads; an override of that holds for both."""
    graph = chain(SHAPE, SPREAD, (Relu(), []), conv())
    plan, notes = plan_of(graph, config_of(s0={"activation": {"granularity": "layer"}}))
    assert not steps_of(plan) and not notes


def test_what_an_input_gives_is_not_split() -> None:
    """Its integers have one scale; a maximum of them cannot be resolved finer."""
    graph = chain(SHAPE, (Pooling((2, 2)), []), conv())
    samples = [{"x": feeds["x"] * SPREAD[1][0].astype(np.float32)} for feeds in random_samples(graph)]
    resolved, notes = resolve_granularity(graph, observe(graph, samples), config_of())
    assert not steps_of(make_plan(graph, observe(graph, samples), resolved)) and not notes


def test_channels_that_were_not_calibrated_have_one_scale_and_a_note_says_so() -> None:
    graph = chain(SHAPE, SPREAD, conv(), SPREAD, conv())
    ranges = observe(graph, random_samples(graph))
    ranges["s0"] = replace(ranges["s0"], channels=())
    notes = expand_graph(graph, ranges, config_of()).notes
    assert any(note.startswith("s2 (broadcast_mul): groups of") for note in notes)
    assert notes[-1] == "one scale where calibration saw no channels, since axis 0 counts no samples: s0"


def test_nothing_changes_where_nothing_is_auto() -> None:
    graph = chain(SHAPE, SPREAD, conv())
    config = QuantizationConfig()
    assert resolve_granularity(graph, observe(graph, random_samples(graph)), config) == (config, ())
