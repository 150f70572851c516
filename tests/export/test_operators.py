"""Every operator with an integer form, quantized in turn in every way, exported in every format: the same integers."""

from __future__ import annotations

from functools import cache

import pytest
from formats import Format, Results, in_every_format

from mrt.model import QuantizedModel, assemble
from mrt.quantization.expand import expand_graph
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array
from tests.matrix import PAIRS, QUANTIZERS, Case, extreme_feeds
from tests.matrix_cases import CASES
from tests.quantization.networks import observe

GROUPS = 12
"""So many tests hold the cases, each a mixture of them."""


def configs_of(case: Case, bits: int, place: int) -> list[QuantizationConfig]:
    """With a weight half of the pairs for eight bits, every other case the same, each with one granularity in turn.

    Else one of the quantizers, every other case the same; for more bits one of those that eight bits do not have.
    """
    configs = list(case.configs(bits))
    scales = len(configs) // (len(PAIRS) if case.has_weight else len(QUANTIZERS))
    turn = (place + (bits != 8)) % 2
    found = [configs[n + place // GROUPS % scales] for n in range(turn * scales, len(configs), 2 * scales)]
    return found if bits == 8 else found[-1:]


@cache
def quantized(place: int, bits: int) -> list[tuple[QuantizedModel, list[dict[str, Array]], Results]]:
    """The models of a case, made once for all formats, each with what they are fed and their integers for it."""
    case = CASES[place]
    samples = [case.draw(seed) for seed in (1, 2)]
    ranges = observe(case.graph, samples)
    found = []
    for config in configs_of(case, bits, place):
        integer = expand_graph(case.graph, ranges, config)
        model = assemble(integer, None, {})
        feeds = [model.quantize_inputs(samples[0]), *extreme_feeds(integer)]
        found.append((model, feeds, [model.graph.evaluate(each) for each in feeds]))
    return found


@pytest.mark.sampled(4)
@in_every_format
@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("bits", [8, 16])
def test_every_operator(target: Format, bits: int, group: int) -> None:
    """Ordinary integers, and all at the ends of their ranges."""
    for place in range(group, len(CASES), GROUPS):
        try:
            for model, feeds, expected in quantized(place, bits):
                target.assert_same(model.graph, feeds, model.inputs, expected)
        except Exception as error:
            raise AssertionError(f"{CASES[place]}: {error}") from error
