"""Weights that were quantized for a plan are taken where just the same is asked, and only there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mrt
from mrt.quantization.algorithms.algorithm import Samples
from mrt.quantization.expand import expand_planned, plan_graph, rounded_weights
from mrt.quantization.integer.rounder import AsAsked, Asked
from mrt.quantization.options import ActivationOverride, Override, QuantizationConfig
from mrt.quantization.simulation.simulation import planned_before, planned_weights
from mrt.symbol import NumpyRunner
from tests.quantization.test_parts import GRAPH, LAYERS, OBSERVED, X


def widened(config: QuantizationConfig, *names: str) -> QuantizationConfig:
    override = Override(activation=ActivationOverride(bits=12))
    return config.model_copy(update={"overrides": dict.fromkeys(names, override)})


def test_the_same_plan_asks_for_nothing_new(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    original = Asked.quantized
    monkeypatch.setattr(Asked, "quantized", lambda self, *rounded: made.append(self) or original(self, *rounded))
    rounder, config = AsAsked(OBSERVED), QuantizationConfig()
    planned = plan_graph(GRAPH, OBSERVED.ranges, config)
    rounded_weights(planned, OBSERVED, rounder=rounder)
    assert len(made) == LAYERS
    known = expand_planned(planned, {}, OBSERVED, rounder=rounder)
    assert len(made) == LAYERS
    fresh = expand_planned(planned, {}, OBSERVED)
    assert len(made) == 2 * LAYERS
    assert str(known.graph) == str(fresh.graph)
    for name, value in fresh.graph.parameters.items():
        np.testing.assert_array_equal(known.graph.parameters[name], value)


def test_other_bits_ask_anew_for_the_layers_that_see_them() -> None:
    rounder, config = AsAsked(OBSERVED), QuantizationConfig()
    rounded_weights(plan_graph(GRAPH, OBSERVED.ranges, config), OBSERVED, rounder=rounder)
    before = dict(rounder.known)
    planned = plan_graph(GRAPH, OBSERVED.ranges, widened(config, "relu5"))
    found = expand_planned(planned, {}, OBSERVED, rounder=rounder)
    fresh = expand_planned(planned, {}, OBSERVED)
    changed = {name for name, known in rounder.known.items() if known is not before[name]}
    assert changed == {"s5", "s6"}, "the layer that is rescaled to the wider tensor, and the one that reads it"
    for name, value in fresh.graph.parameters.items():
        np.testing.assert_array_equal(found.graph.parameters[name], value)


@pytest.mark.parametrize("what", ["step", "target", "bias", "options", "ends", "weight"])
def test_what_differs_is_seen(what: str) -> None:
    rounder = AsAsked(OBSERVED)
    rounded_weights(plan_graph(GRAPH, OBSERVED.ranges, QuantizationConfig()), OBSERVED, rounder=rounder)
    asked, _ = rounder.known["s3"]
    assert asked.is_same(replace(asked))
    if what in ("step", "target", "bias"):
        old = getattr(asked.accumulator, what)
        other = np.ones(len(asked.weight)) if old is None else np.asarray(old) * 1.001
        assert not asked.is_same(replace(asked, accumulator=replace(asked.accumulator, **{what: other})))
    else:
        options = asked.options.model_copy(update={"bits": 7})
        changes = {"options": options, "ends": [*asked.ends, 99], "weight": asked.weight.copy()}
        assert not asked.is_same(replace(asked, **{what: changes[what]}))


def test_the_plan_that_was_tried_last_is_known() -> None:
    samples, config = Samples([X], mrt.CalibrationConfig(), NumpyRunner()), QuantizationConfig()
    assert planned_before(GRAPH, config, samples) is None
    planned, _ = planned_weights(GRAPH, OBSERVED, config, samples)
    assert planned_before(GRAPH, config, samples) is planned
    assert planned_before(GRAPH, widened(config, "relu5"), samples) is None
