"""An error analysis of quantized graphs: how far from float their integers may be, derived from the scales alone.

Every tensor gets a bound |dequantized integer - float| for each of its elements. It starts with half a step at the
inputs, grows by each operator's rule (`error_rules.py`), and by half a step wherever the integers are rounded to
another scale. The rules follow from the mathematics of the float operators; scales are those that the quantized
graph states of itself, and targets those of its plan. A rule's x and y are float values, ex and ey their errors, s the
scale of the result.

The float reference has float32 tensors: each adds 2^-24 of its value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mrt.quantization.integer.integer_graph import IntegerGraph
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Array, Symbol
from tests.quantization.networks import proven_bounds

FLOAT32 = 2.0**-24
INT32_MAX = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Operand:
    """One input in the form in which its operator reads it.

    value: float64. error: of the integers that stand for it, of its shape. scale: one or one a channel; reach, span:
    the largest real magnitude that the form holds in any channel, and the distance of its ends; 0 where no quantizer
    says it.
    """

    value: Array
    error: Array
    scale: Array
    reach: float = 0.0
    span: float = 0.0
    is_parameter: bool = False

    @property
    def size(self) -> Array:
        return np.abs(self.value)


Rule = Callable[[Symbol, Sequence[Operand], "ErrorAnalysis"], Array]


@dataclass(frozen=True)
class Rescaling:
    """How a tensor's integers are brought to another scale.

    A multiplier beside integers of at most m has w = 31 - bits(m) bits, at least 8 since larger integers are shifted
    right before, at most 15: it is off by a share of 1 / (2^w - 1), and by 2^-32 for want of shifts beyond 31, which
    is `steps` of the result. Of integers shifted right before, `coarse` is half a step. `rounds`: whether bits are
    dropped; where they are not, scales that differ by less than a multiplier resolves are taken for one.
    """

    share: float = 1 / (2**15 - 1)
    steps: float = 0.0
    coarse: float = 0.0
    rounds: bool = False

    def error(self, scale: float | Array, operand: Operand) -> Array:
        """That of `operand` at a scale; a free scale grows by twice the share at most."""
        if not self.rounds and np.allclose(scale, operand.scale, rtol=1e-9, atol=0):
            return operand.error
        half = (0.5 * self.rounds + self.steps) * (1 + 2 * self.share) * scale
        result: Array = operand.error + half + self.share * (operand.size + operand.error) + self.coarse
        return result

    def at_magnitude(self, magnitude: int) -> Rescaling:
        """The same with a multiplier beside integers of that magnitude."""
        bits = min(15, max(8, 31 - magnitude.bit_length()))
        return replace(self, share=max(self.share, 1 / (2**bits - 1)), steps=max(self.steps, magnitude * 2.0**-32))


class ErrorAnalysis:
    """The bounds of one quantized graph; `rules` by the operator's name."""

    def __init__(self, integer: IntegerGraph, plan: Plan, rules: Mapping[str, Rule]) -> None:
        self.integer, self.plan, self._rules = integer, plan, rules
        self._bounds = proven_bounds(integer)
        self._forms: dict[str, list[Array]] = {}
        for symbol in (*integer.graph.inputs, *integer.graph.operators):
            if symbol.name in integer.scales:
                self._forms.setdefault(symbol.origin, []).append(integer.scales[symbol.name])
        self._rescalings: dict[str, Rescaling] = {}
        for symbol in integer.graph.operators:
            before = self._rescalings.get(symbol.origin, Rescaling())
            self._rescalings[symbol.origin] = self._joined(symbol, before)

    @property
    def config(self) -> QuantizationConfig:
        return self.plan.config

    def errors(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The bound of every graph output for these real inputs, of its shape."""
        graph = self.plan.graph
        values = {s.name: np.asarray(v, np.float64) for s, v in (*graph.walk(feeds),)}
        values |= {name: np.asarray(value, np.float64) for name, value in feeds.items()}
        errors: dict[str, Array] = {}
        for symbol in (*graph.inputs, *graph.operators):
            errors[symbol.name] = self._wide_error(symbol, values, errors)
        results = []
        for symbol, output in zip(graph.outputs, self.integer.outputs, strict=True):
            if graph.value(symbol) is not None:
                results.append(np.broadcast_to(output.scale / 2, symbol.shape))
                continue
            operand = Operand(values[symbol.name], errors[symbol.name], self.scale(symbol))
            results.append(self.rescaling(symbol).error(output.scale, operand))
        return results

    def rescaling(self, symbol: Symbol) -> Rescaling:
        """How the tensor's integers get to other scales; without error where nothing in the integer graph does."""
        return self._rescalings.get(symbol.name, Rescaling())

    def forms(self, symbol: Symbol) -> list[Array]:
        """The scales of all integer tensors that stand for the float one, in the order in which they were made."""
        return self._forms.get(symbol.name, [])

    def scale(self, symbol: Symbol) -> Array:
        """The scale of the integers that its expansion gave; of what reads them where these joined it.

        Those of a product with a constant are its factor's own, at another scale, where nothing was made for it.
        """
        while symbol.name not in self.integer.scales and not self.forms(symbol):
            if symbol.op == "broadcast_mul":
                (index,) = (i for i, source in enumerate(symbol.inputs) if self.plan.graph.value(source) is None)
                return self.scale(symbol.inputs[index]) * self._constant_of(symbol)
            (symbol,) = self.plan.graph.consumers[symbol] or (symbol.inputs[0],)
        return self.integer.scales.get(symbol.name, (self.forms(symbol) or [np.ones(())])[0])

    def stated(self, made: Symbol, tensor: Symbol) -> Array:
        """The scale at which a symbol of the integer graph stands for a float tensor: products may share integers."""
        scale = self.integer.scales[made.name]
        while tensor.name != made.origin:
            scale = scale * (self._constant_of(tensor) if tensor.op == "broadcast_mul" else 1.0)
            tensor = next(source for source in tensor.inputs if self.plan.graph.value(source) is None)
        return scale

    def _constant_of(self, product: Symbol) -> Array:
        """The magnitude of the constant that a tensor is multiplied with, of the product's rank."""
        (value,) = (v for source in product.inputs if (v := self.plan.graph.value(source)) is not None)
        return aligned(np.abs(value.astype(np.float64)), product.type.rank)

    def _wide_error(self, symbol: Symbol, values: Mapping[str, Array], errors: Mapping[str, Array]) -> Array:
        value = values[symbol.name]
        if symbol.is_variable:
            given = symbol.name in self.config.inputs
            # The quotient by the scale is rounded in float32 before it is rounded to an integer.
            half = np.broadcast_to(self.scale(symbol) / 2, symbol.shape) + 2 * FLOAT32 * np.abs(value)
            return np.zeros(symbol.shape) if given else half
        operands = [self._operand(symbol, index, values, errors) for index in range(len(symbol.inputs))]
        found = self._rules[symbol.op](symbol, operands, self)
        return np.broadcast_to(found, symbol.shape) + FLOAT32 * np.abs(value)

    def _operand(self, symbol: Symbol, index: int, values: Mapping[str, Array], errors: Mapping[str, Array]) -> Operand:
        source = symbol.inputs[index]
        target = self.plan.edge(symbol, index)
        parameter = self.plan.graph.value(source)
        if parameter is not None:
            scale = self.integer.scales.get(source.name, np.asarray(1.0 if target is None else target.scale))
            error = np.zeros(source.shape) if target is None else np.full(source.shape, float(scale.max()) / 2)
            value = parameter.astype(np.float64)
            return Operand(value, error, scale, reach=float(np.abs(value).max()), is_parameter=True)
        wide = Operand(values[source.name], errors[source.name], self.scale(source))
        if target is None:
            return wide
        scale = np.asarray(target.scale) if target.groups is None else target.scales(source.shape)
        error = self.rescaling(source).error(scale, wide)
        span = float(scale.max()) * (target.hi - target.lo)
        return replace(wide, error=error, scale=scale, reach=float(scale.max()) * target.reach, span=span)

    def _joined(self, symbol: Symbol, before: Rescaling) -> Rescaling:
        source = symbol.inputs[0]
        if symbol.op == "broadcast_mul" and symbol.inputs[1].name.startswith(f"{symbol.origin}_frac"):
            return before.at_magnitude(int(self._bounds[source.name].magnitude))
        if symbol.op != "right_shift":
            return before
        coarse = before.coarse
        if symbol.name.startswith(f"{symbol.origin}_pre_shift"):
            stated = source
            while stated.name not in self.integer.scales:
                stated = stated.inputs[0]
            by = int(self.integer.graph.value(symbol.inputs[1]).max())
            coarse = max(coarse, float(self.integer.scales[stated.name].max()) * 2.0 ** (by - 1))
        return replace(before, coarse=coarse, rounds=True)


def aligned(array: Array, rank: int) -> Array:
    return array.reshape((1,) * (rank - array.ndim) + array.shape)
