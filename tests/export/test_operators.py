"""Every operator with an integer form, quantized in every way and exported in every format: the same integers."""

from __future__ import annotations

from functools import cache

import pytest
from formats import Format, Results, in_every_format

from mrt.model import QuantizedModel, assemble
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array
from tests.matrix import PAIRS, Case, extreme_feeds
from tests.matrix_cases import CASES
from tests.quantization.networks import observe, quantize_and_run

GROUPS = 12
"""So many tests hold the cases, each a mixture of them."""


def configs_of(case: Case, bits: int, turn: int) -> list[QuantizationConfig]:
    """Every pair of quantizers for eight bits, each with one granularity of the weight in turn; the last for more."""
    configs = list(case.configs(bits))
    if bits != 8:
        return configs[-1:]
    scales = len(configs) // len(PAIRS)
    return configs if scales < 2 else [configs[scales * n + (turn + n) % scales] for n in range(len(PAIRS))]


@cache
def quantized(place: int, bits: int) -> list[tuple[QuantizedModel, list[dict[str, Array]], Results]]:
    """The models of a case, made once for all formats, each with what they are fed and their integers for it."""
    case = CASES[place]
    samples = [case.draw(seed) for seed in (1, 2)]
    ranges = observe(case.graph, samples)
    found = []
    for config in configs_of(case, bits, place // GROUPS):
        integer = quantize_and_run(case.graph, samples, config, ranges).integer
        model = assemble(integer, None, {})
        feeds = [model.quantize_inputs(samples[0]), *extreme_feeds(integer)]
        found.append((model, feeds, [model.graph.evaluate(each) for each in feeds]))
    return found


@pytest.mark.sampled(4)
@in_every_format
@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("bits", [8, 16])
def test_every_operator(target: Format, bits: int, group: int) -> None:
    """Ordinary integers, and all at the ends of their ranges; eight bits with every pair of quantizers."""
    for place in range(group, len(CASES), GROUPS):
        try:
            for model, feeds, expected in quantized(place, bits):
                target.assert_same(model.graph, feeds, model.inputs, expected)
        except Exception as error:
            raise AssertionError(f"{CASES[place]}: {error}") from error
