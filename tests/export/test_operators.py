"""Every operator with an integer form, quantized in every way and exported in every format: the same integers."""

from __future__ import annotations

from functools import cache

import pytest
from formats import Format, in_every_format

from mrt.model import QuantizedModel, assemble
from mrt.symbol import Array
from tests.matrix import Case, extreme_feeds
from tests.matrix_cases import CASES
from tests.quantization.networks import observe, quantize_and_run

GROUPS = 12
"""So many tests hold the cases, each a mixture of them."""


@cache
def quantized(case: Case, bits: int) -> list[tuple[QuantizedModel, list[dict[str, Array]]]]:
    """The models of a case, made once for all formats, each with what they are fed."""
    samples = [case.draw(seed) for seed in (1, 2)]
    ranges = observe(case.graph, samples)
    configs = list(case.configs(bits))
    found = []
    for config in configs if bits == 8 else configs[-1:]:
        integer = quantize_and_run(case.graph, samples, config, ranges).integer
        model = assemble(integer, None, {})
        found.append((model, [*(model.quantize_inputs(feeds) for feeds in samples), *extreme_feeds(integer)]))
    return found


@pytest.mark.sampled(4)
@in_every_format
@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("bits", [8, 16])
def test_every_operator(target: Format, bits: int, group: int) -> None:
    """Ordinary integers, and all at the ends of their ranges; eight bits with every pair of quantizers."""
    for case in CASES[group::GROUPS]:
        try:
            for model, feeds in quantized(case, bits):
                target.assert_same(model.graph, feeds, model.inputs)
        except Exception as error:
            raise AssertionError(f"{case}: {error}") from error
