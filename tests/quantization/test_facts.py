"""Passes over tensors: each fills one fact as a whole, and none reads what is not filled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mrt.calibration import Range
from mrt.errors import QuantizationError
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.plan.facts import FactPass, Facts, run_fact_passes
from mrt.quantization.plan.make import FACT_PASSES, make_plan
from mrt.quantization.plan.text import plan_text, target_text
from mrt.quantization.quantizer import ChannelGroups, Target
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.linear import FullyConnected
from tests.quantization.networks import chain

GRAPH = chain((1, 3), (FullyConnected(2, no_bias=True), [np.eye(2, 3)]), (Relu(), []))
"""x, multiplied to s0, limited to s1."""
RANGES = {"x": Range(-1.0, 2.0), "s0": Range(-1.0, 2.0), "s1": Range(0.0, 2.0)}
EMPTY = Facts(GRAPH, QuantizationConfig(), RANGES, {})


def test_every_pass_states_what_it_reads() -> None:
    """With nothing filled but what it requires, each finds the same as in its place."""
    facts = run_fact_passes(EMPTY, FACT_PASSES)
    for step in FACT_PASSES:
        alone = replace(EMPTY, tables={fact: facts.tables[fact] for fact in step.requires})
        assert step.run(alone).tables[step.fills] == facts.tables[step.fills]


# What comes behind them is read by the walk from the outputs.
@pytest.mark.parametrize("missing", range(4))
def test_a_pass_that_comes_too_early_is_named_with_what_it_needs(missing: int) -> None:
    passes = [step for place, step in enumerate(FACT_PASSES) if place != missing]
    with pytest.raises(QuantizationError, match=f"needs .*{FACT_PASSES[missing].fills}.*which no pass has filled"):
        run_fact_passes(EMPTY, passes)


def test_a_fact_is_filled_once() -> None:
    with pytest.raises(QuantizationError, match="fixed is filled twice"):
        run_fact_passes(EMPTY, [FACT_PASSES[0], FACT_PASSES[0]])


def test_a_fact_that_is_read_but_not_required_is_an_error() -> None:
    careless = FactPass("careless", lambda facts: facts.ranges)
    with pytest.raises(QuantizationError, match="reads ranges, which no pass has filled"):
        careless.run(EMPTY)


def test_what_a_pass_left_alone_reaches_the_plan() -> None:
    """Channel groups of a tensor of whose channels calibration saw nothing."""
    config = QuantizationConfig.model_validate({"activation": {"granularity": {"channel": 1}}})
    graph = chain(
        (1, 4, 3, 3), (Relu(), []), (FullyConnected(2, no_bias=True, flatten=False), [np.ones((2, 3))]), (Relu(), [])
    )
    plan = make_plan(graph, dict.fromkeys(("x", "s0", "s1", "s2"), Range(-1.0, 1.0)), config)
    assert plan.left_alone == ("one scale where calibration saw no channels, since axis 0 counts no samples: s0",)


def test_every_input_of_every_operator_has_a_form() -> None:
    plan = make_plan(GRAPH, RANGES, QuantizationConfig())
    edges = {edge for tensor in plan.tensors.values() for edge in tensor.edges}
    assert edges == {(symbol.name, index) for symbol in GRAPH.operators for index in range(len(symbol.inputs))}


def test_the_plan_as_a_text() -> None:
    assert plan_text(make_plan(GRAPH, RANGES, QuantizationConfig())) == (
        "x (input): [-1, 2]\n"
        "    own: [-127, 127], scale 0.015748\n"
        "    to s0, input 0: at own\n"
        "    rescaled next to: [-127, 127], scale 0.015748\n"
        "s0 (FullyConnected): [-1, 2]\n"
        "    own: [-127, 127], scale 0.015748\n"
        "    to s1, input 0: as it is\n"
        "    rescaled next to: [-32767, 32767], scale 6.1037e-05\n"
        "s1 (relu): [0, 2]\n"
        "    own: [0, 255], scale 0.00784314\n"
        "    output: [-32767, 32767], scale 6.1037e-05\n"
        "    rescaled next to: [-32767, 32767], scale 6.1037e-05"
    )
    assert plan_text(make_plan(GRAPH, RANGES, QuantizationConfig()), "s1").startswith("s1 (relu)")


def test_channel_groups_as_a_text() -> None:
    groups = ChannelGroups(1, 2, (1, 8), (0, 3))
    assert (
        target_text(Target(0.5, 0, 15, groups=groups))
        == "[0, 15], scale 0.5, 2 groups of 2 along axis 1, factors 1 to 8"
    )
    assert target_text(Target(0.5, 0, 15, zero_point=2, pinned=True)) == "[0, 15], scale 0.5, zero point 2, pinned"
