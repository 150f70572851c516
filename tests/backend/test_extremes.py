"""Chains at the ends of 32 bits: whatever compilers make of them, the integers are those of Python."""

from __future__ import annotations

from typing import Any

import pytest

from mrt.backend import TvmRunner, compile_model
from mrt.symbol import Interval
from mrt.symbol.bounds import analyse_bounds
from mrt.symbol.quantized_tensor import TensorQuantization
from tests.extremes import NAMED, Chains, chains, named_chains

Array = Any


def compiled(chains: Chains) -> list[Array]:
    """What the chains' module gives, made with the intervals of their inputs as those of models are."""
    outputs = [TensorQuantization(s.name, s.shape, s.dtype, 1.0, 0, 0, 0) for s in chains.graph.outputs]
    found = compile_model(chains.graph, chains.inputs, outputs, None, "0" * 64).run_integer(chains.feeds)
    return found if isinstance(found, list) else [found]


@pytest.fixture(scope="module")
def found() -> dict[str, tuple[Array, Array]]:
    """What is compiled of each named chain, and what it means."""
    named = named_chains()
    analyse_bounds(named.graph, {entry.name: Interval.of(entry.lo, entry.hi, entry.shape) for entry in named.inputs})
    return dict(zip(NAMED, zip(compiled(named), named.expected, strict=True), strict=True))


@pytest.mark.parametrize("name", NAMED)
def test_no_rearranging_leaves_32_bits(name: str, found: dict[str, tuple[Array, Array]]) -> None:
    integers, expected = found[name]
    assert integers.tolist() == expected.tolist()


@pytest.mark.parametrize("seed", [0, 125])
def test_random_chains_are_exact(seed: int) -> None:
    drawn = chains(seed, 10)
    for symbol, integers, expected in zip(drawn.graph.outputs, compiled(drawn), drawn.expected, strict=True):
        assert integers.tolist() == expected.tolist(), symbol


def test_random_chains_of_which_dtypes_are_known_are_exact() -> None:
    """No intervals of inputs: what is compiled relies on none."""
    drawn = chains(2, 10)
    results = TvmRunner().prepare(drawn.graph)(drawn.feeds)
    for symbol, integers, expected in zip(drawn.graph.outputs, results, drawn.expected, strict=True):
        assert integers.tolist() == expected.tolist(), symbol
