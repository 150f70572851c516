"""An operator with its attributes as a small float graph, data to feed it with, and its integers held to float."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mrt.calibration import Range
from mrt.preparation import AveragePoolingToSum, ScalarsToConstants, SeparateBias, SeparatePad
from mrt.quantization.integer.integer_graph import IntegerGraph
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, Graph, GraphBuilder, Operator, Symbol, TensorType, run_passes
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.functions import Negative
from mrt.symbol.operators.pooling import Pooling
from tests.error_bounds import ErrorAnalysis
from tests.error_rules import RULES
from tests.quantization.networks import Outcome, proven_bounds, quantize_and_run

QUANTIZERS = ("symmetric", "affine")
PAIRS = tuple(itertools.product(QUANTIZERS, repeat=2))
"""Quantizers of the activation and of the weight: formalizations 1 to 4."""
STEPS = (1, 3)
"""How many channels share a scale: one, and so many that a remainder is left of the matrix' four."""
SPLIT = ((True, True), (False, True), (True, False), (True, True))
"""For each of PAIRS whether the activation and the weight have channel groups."""
NORMAL_FORM = (ScalarsToConstants(), AveragePoolingToSum(), SeparatePad(), SeparateBias())
"""The passes that bring an operator to the form in which it is quantized, and leave it what it is."""


@dataclass(frozen=True)
class Data:
    """An input: real numbers, or positive ones above 0.25, or (given as integers) places below `count`."""

    shape: tuple[int, ...]
    positive: bool = False
    count: int = 0

    @property
    def is_real(self) -> bool:
        return not self.positive and not self.count


@dataclass(frozen=True)
class Weights:
    """A parameter drawn at random."""

    shape: tuple[int, ...]
    scale: float = 1.0

    def draw(self, seed: int) -> Array:
        return (self.scale * np.random.default_rng(seed).standard_normal(self.shape)).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Case:
    """An operator on inputs and parameters; more operators may follow, each with its parameters.

    is_loose: whether a bound may be as large as the output: where terms of either sign cancel, where a function jumps,
    where the output is a place. step: how many channels of what the operator reads share a scale, None for all; since
    inputs have one scale, a constant for each channel and, where there is space, a maximum of single elements stand in
    front of it, and the opposite of what it gives behind one that only moves values.
    """

    operator: Operator
    operands: tuple[Data | Weights | Array, ...]
    then: tuple[tuple[Operator, tuple[Weights | Array, ...]], ...] = ()
    is_loose: bool = False
    step: int | None = None

    def __str__(self) -> str:
        attributes = ",".join(f"{k}={v}" for k, v in self.operator.attributes().items()).replace(" ", "")
        shapes = "x".join(str(operand.shape).replace(" ", "") for operand in self.operands)
        groups = "" if self.step is None else f"groups of {self.step}"
        parts = [self.operator.op, attributes, shapes, *(op.op for op, _ in self.then), groups]
        return "-".join(filter(None, parts))

    @property
    def has_weight(self) -> bool:
        """Whether the weight's quantizer and granularity matter."""
        return self.operator.weight_channel_axis is not None

    @cached_property
    def graph(self) -> Graph:
        builder = GraphBuilder()
        names = iter("abcd")

        def parameter(value: Weights | Array, seed: int) -> Array:
            return value.draw(seed) if isinstance(value, Weights) else value

        inputs = [
            self._in_groups(builder.input(next(names), TensorType(operand.shape)), operand, builder)
            if isinstance(operand, Data)
            else builder.parameter(f"p{index}", parameter(operand, index))
            for index, operand in enumerate(self.operands)
        ]
        symbol = builder.apply(self.operator, inputs, "y")
        for place, (operator, values) in enumerate(self.then):
            extra = [builder.parameter(f"q{place}", parameter(value, 10 + place)) for value in values]
            symbol = builder.apply(operator, [symbol, *extra], f"z{place}")
        if self.step is not None and symbol.operator.keeps_scale:
            # What only moves values to an output takes them at the output's one scale.
            symbol = builder.apply(Negative(), [symbol], "opposite")
        return run_passes(builder.graph([symbol]), NORMAL_FORM).graph

    def _in_groups(self, symbol: Symbol, data: Data, builder: GraphBuilder) -> Symbol:
        """`symbol` with channels that differ in range, in channel groups if there are any."""
        rank = symbol.type.rank
        if self.step is None or data.count or rank < 2:
            return symbol
        spread = (0.25 ** (np.arange(data.shape[1]) % 3)).reshape(-1, *(1,) * (rank - 2))
        constant = builder.parameter(f"{symbol.name}_spread", spread.astype(np.float32))
        product = builder.apply(BroadcastMul(), [symbol, constant], f"{symbol.name}_product")
        if rank == 2:
            return product
        return builder.apply(Pooling((1,) * (rank - 2)), [product], f"{symbol.name}_groups")

    @property
    def inputs(self) -> dict[str, Data]:
        return dict(zip("abcd", (operand for operand in self.operands if isinstance(operand, Data)), strict=False))

    def config(
        self,
        activation: str,
        weight: str = "symmetric",
        scales: str = "output_channel",
        bits: int = 8,
    ) -> QuantizationConfig:
        """The quantizers and the granularity of the weight; the case's channel groups, if any, follow from those."""
        split = SPLIT[PAIRS.index((activation, weight))] if self.has_weight else (True, False)
        granularity = ["layer" if self.step is None or not is_split else {"channel": self.step} for is_split in split]
        given = {name: data for name, data in self.inputs.items() if data.count}
        return QuantizationConfig.model_validate(
            {
                "activation": {"quantizer": activation, "bits": bits, "granularity": granularity[0]},
                "weight": {"quantizer": weight, "scales": scales, "bits": bits, "granularity": granularity[1]},
                "inputs": {name: {"dtype": "int16", "range": [0, data.count - 1]} for name, data in given.items()},
            }
        )

    def configs(self, bits: int = 8) -> Iterator[QuantizationConfig]:
        """Every pair of quantizers and granularity that matters; with channel groups one granularity for each pair."""
        every = ("output_channel", "layer") if self.has_weight else ("output_channel",)
        for turn, (activation, weight) in enumerate(PAIRS):
            if self.has_weight or activation == weight:
                for scales in every if self.step is None else every[turn % len(every) :][:1]:
                    yield self.config(activation, weight if self.has_weight else QUANTIZERS[0], scales, bits)

    def draw(self, seed: int, kind: str = "normal") -> dict[str, Array]:
        """One array for each input, of the kind that DRAWS names."""
        rng = np.random.default_rng(seed)
        feeds = {}
        for name, data in self.inputs.items():
            if data.count:
                feeds[name] = rng.integers(0, data.count, data.shape).astype(np.float32)
                continue
            values = DRAWS[kind](rng, data.shape)
            feeds[name] = (np.abs(values) + 0.25 if data.positive else values).astype(np.float32)
        return feeds


def _ties(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Half-way between two integers of 8 bits symmetric, where float32 divides exactly; the largest at the end."""
    values = rng.integers(-126, 126, shape) + 0.5
    values.reshape(-1)[0] = 127.0
    return values * 2.0**-5


DRAWS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "not negative": lambda rng, shape: np.abs(rng.standard_normal(shape)),
    "not positive": lambda rng, shape: -np.abs(rng.standard_normal(shape)),
    "far above zero": lambda rng, shape: 9.0 + rng.standard_normal(shape),
    "far below zero": lambda rng, shape: rng.standard_normal(shape) - 9.0,
    "all extreme": lambda rng, shape: rng.choice([-3.0, 3.0], shape),
    "ties": _ties,
    "constant": lambda rng, shape: np.full(shape, rng.choice([-2.5, 0.0, 1.0])),
    "one channel zero": lambda rng, shape: rng.standard_normal(shape) * (np.arange(shape[-1]) != 1),
    "one outlier": lambda rng, shape: rng.standard_normal(shape) * np.where(rng.random(shape) < 0.02, 50.0, 1.0),
}
"""How a tensor is filled: the ranges put an affine zero point inside, at either end, and where most integers idle."""


def run(
    graph: Graph,
    samples: Sequence[dict[str, Array]],
    config: QuantizationConfig,
    observed: Mapping[str, Range] | None = None,
) -> tuple[Outcome, list[list[Array]]]:
    """`graph` quantized and run on samples, with the bound of each sample's outputs.

    observed: the ranges, by default those of the samples.
    """
    outcome = quantize_and_run(graph, samples, config, observed)
    analysis = ErrorAnalysis(outcome.integer, outcome.plan, RULES)
    return outcome, [analysis.errors(feeds) for feeds in samples]


def extreme_feeds(integer: IntegerGraph, seed: int = 0) -> list[dict[str, Array]]:
    """Integers all at either end of the inputs' ranges, at both in turn, and anywhere."""
    rng = np.random.default_rng(seed)
    found = []
    for pick in ("low", "high", "either", "any"):
        feeds = {}
        for symbol, target in integer.inputs:
            values = {
                "low": np.full(symbol.shape, target.lo),
                "high": np.full(symbol.shape, target.hi),
                "either": rng.choice([target.lo, target.hi], symbol.shape),
                "any": rng.integers(target.lo, target.hi, symbol.shape, endpoint=True),
            }
            feeds[symbol.name] = values[pick].astype(symbol.dtype)
        found.append(feeds)
    return found


def assert_within_bounds(
    graph: Graph,
    samples: list[dict[str, Array]],
    config: QuantizationConfig,
    useful: float = np.inf,
    observed: Mapping[str, Range] | None = None,
) -> IntegerGraph:
    """The integers of `graph` are within the analytic bound of float, which is a `useful` share of the output."""
    outcome, bounds = run(graph, samples, config, observed)
    for real, found, bound in zip(outcome.real, outcome.approximate, bounds, strict=True):
        for index, output in enumerate(graph.outputs):
            excess = np.abs(found[index] - real[index]) - bound[index]
            worst = np.unravel_index(np.argmax(excess), excess.shape)
            assert excess[worst] <= 0, f"{output.name} at {worst}: {found[index][worst]} for {real[index][worst]}"
            assert bound[index].max() <= useful * np.abs(real[index]).max(initial=1e-30)
    return outcome.integer


def assert_proven_at_extremes(integer: IntegerGraph) -> None:
    """Every tensor stays within its proven bounds and 32 bits for the extremes of the inputs."""
    bounds = proven_bounds(integer)
    for feeds in extreme_feeds(integer):
        for symbol, value in integer.graph.walk(feeds):
            interval = bounds[symbol.name]
            assert interval.bits <= 32 and symbol.dtype in DTYPE_RANGES
            assert (value >= interval.lo).all() and (value <= interval.hi).all(), f"{symbol.name} leaves {interval}"
