"""Every operator with an integer form, quantized in every way and exported in every format: the same integers."""

from __future__ import annotations

import pytest
from formats import Format, in_every_format

from mrt.model import assemble
from tests.matrix import Case, extreme_feeds
from tests.matrix_cases import CASES
from tests.quantization.networks import quantize_and_run

GROUPS = 12
"""So many tests hold the cases, each a mixture of them."""


def check(target: Format, case: Case, bits: int) -> None:
    samples = [case.draw(seed) for seed in (1, 2)]
    configs = list(case.configs(bits))
    for config in configs if bits == 8 else configs[-1:]:
        integer = quantize_and_run(case.graph, samples, config).integer
        model = assemble(integer, None, {})
        ordinary = [model.quantize_inputs(feeds) for feeds in samples]
        target.assert_same(model.graph, [*ordinary, *extreme_feeds(integer)], model.inputs)


@in_every_format
@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("bits", [8, 16])
def test_every_operator(target: Format, bits: int, group: int) -> None:
    """Ordinary integers, and all at the ends of their ranges; eight bits with every pair of quantizers."""
    for case in CASES[group::GROUPS]:
        try:
            check(target, case, bits)
        except Exception as error:
            raise AssertionError(f"{case}: {error}") from error
