"""Activations: relu, clip, tanh, sigmoid, and LeakyReLU with all that MXNet counts among its kinds."""

from __future__ import annotations

import math

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._checks import require_float
from mrt.symbol.operators._intervals import hull_of, product
from mrt.symbol.operators.functions import FloatFunction, erf, gated, real, sigmoid, valley
from mrt.symbol.types import INT32_MAX, INT32_MIN, TensorType


@operator("relu")
class Relu(Operator):
    """max(x, 0), elementwise. Keeps scale; with a zero point z it is max(q, z)."""

    is_elementwise = True
    attains_bounds = True
    expression_arity = 1
    exact_in_integers = True
    limits = (0.0, math.inf)

    keeps_scale = True

    def infer(self, x: TensorType) -> TensorType:
        return x

    def evaluate(self, x: Array) -> Array:
        return np.maximum(x, 0)

    def bounds(self, x: Interval) -> Interval:
        return x.map(lambda v: np.maximum(v, 0))


@operator("clip")
class Clip(Operator):
    """min(max(x, a_min), a_max), elementwise. Keeps scale; integers are clipped to the integers in [a_min, a_max]."""

    is_elementwise = True
    attains_bounds = True
    expression_arity = 1
    exact_in_integers = True

    a_min: float
    a_max: float

    keeps_scale = True

    @property
    def limits(self) -> tuple[float, float]:
        return self.a_min, self.a_max

    def infer(self, x: TensorType) -> TensorType:
        if not self.a_min <= self.a_max:
            raise GraphError(f"a_min {self.a_min} exceeds a_max {self.a_max}; a_min <= a_max is needed")
        if x.is_integer and x.dtype != "bool":
            lo, hi = self._integers()
            info = np.iinfo(x.dtype)
            if lo > hi or lo > info.max or hi < info.min:
                raise GraphError(f"no {x.dtype} lies in [{self.a_min}, {self.a_max}]; widen it or cast the data first")
        return x

    def evaluate(self, x: Array) -> Array:
        if x.dtype.kind == "f":
            return np.clip(x.astype(np.float64), self.a_min, self.a_max)
        return np.clip(x.astype(np.int64), *self._integers())

    def bounds(self, x: Interval) -> Interval:
        lo, hi = (self.a_min, self.a_max) if x.lo.dtype.kind == "f" else self._integers()
        return x.map(lambda v: np.minimum(np.maximum(v, lo), hi))

    def _integers(self) -> tuple[int, int]:
        """The lowest and the highest 32-bit integer in [a_min, a_max]; the lowest is the higher where there is none."""
        lowest, highest = max(self.a_min, INT32_MIN), min(self.a_max, INT32_MAX)
        return math.ceil(min(lowest, INT32_MAX + 1)), math.floor(max(highest, INT32_MIN - 1))


@operator("LeakyReLU")
class LeakyReLU(Operator):
    """Rectifiers that are not 0 below 0; act_type says which. Float only.

    leaky: x where x > 0, else slope * x. prelu: the same with gamma[c] for the slope, c the index along axis 1; gamma
    has shape (channels,) or (1,) and is an input of this kind only. elu: x where x > 0, else slope * (exp(x) - 1).
    selu: elu of slope 1.6733 times 1.0507, the constants in full. gelu: x * (1 + erf(x / sqrt 2)) / 2. gelu_tanh: its
    approximation x * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
    """

    is_elementwise = True
    expression_arity = 1

    act_type: str = "leaky"
    slope: float = 0.25

    ignored = frozenset({"lower_bound", "upper_bound"})
    input_names = ("data", "gamma")
    kinds = ("leaky", "prelu", "elu", "selu", "gelu", "gelu_tanh")

    def infer(self, x: TensorType, gamma: TensorType | None = None) -> TensorType:
        if self.act_type not in self.kinds:
            raise GraphError(f"act_type is {self.act_type}; one of {', '.join(self.kinds)} is needed")
        if (gamma is not None) != (self.act_type == "prelu"):
            raise GraphError("gamma is an input of act_type prelu and of no other")
        require_float(x)
        if gamma is not None:
            require_float(gamma)
            channels = x.shape[1] if x.rank > 1 else 1
            if gamma.shape not in ((channels,), (1,)):
                raise GraphError(f"gamma is {gamma}; shape ({channels},) or (1,) is needed")
        return x

    @property
    def is_linear(self) -> bool:
        """Whether the function is linear on both sides of 0."""
        return self.act_type in ("leaky", "prelu")

    @property
    def exact_in_integers(self) -> bool:
        return self.is_linear

    def homogeneous_in(self, inputs: int) -> tuple[int, ...]:
        return (0,) if self.is_linear else ()

    def evaluate(self, x: Array, gamma: Array | None = None) -> Array:
        x = real(x)
        if self.act_type in _GELUS:
            return _GELUS[self.act_type][0](x)
        if not self.is_linear:
            gain, slope = self._exponential
            return gain * np.where(x > 0, x, slope * np.expm1(np.minimum(x, 0)))
        below = self.slope * x if gamma is None else per_channel(real(gamma), x.ndim) * x
        return np.where(x > 0, x, below)

    def bounds(self, x: Interval, gamma: Interval | None = None) -> Interval:
        if self.act_type in _GELUS:
            return valley(x, *_GELUS[self.act_type])
        gain, factor = (1.0, self.slope) if self.is_linear else self._exponential
        if gamma is None:
            slope = Interval.of(factor, factor, x.shape)
        else:
            rank = len(x.shape)
            slope = Interval.of(per_channel(gamma.lo, rank), per_channel(gamma.hi, rank), x.shape)
        positive = x.map(lambda v: gain * np.maximum(v, 0))
        below = x.map(lambda v: np.minimum(v, 0) if self.is_linear else gain * np.expm1(np.minimum(v, 0)))
        negative = product(below, slope, x.shape)
        return hull_of([positive, negative], x.shape) if x.min < 0 else positive

    @property
    def _exponential(self) -> tuple[float, float]:
        """Gain and slope of elu and selu."""
        return (1.0, self.slope) if self.act_type == "elu" else (SELU_GAIN, SELU_SLOPE)


SELU_SLOPE, SELU_GAIN = 1.6732632423543772, 1.0507009873554805
"""The fixed point of Klambauer et al., Self-Normalizing Neural Networks, equation 14."""


def _gelu(x: Array) -> Array:
    return gated(x, 0.5 + 0.5 * erf(x * math.sqrt(0.5)))


def _gelu_tanh(x: Array) -> Array:
    with np.errstate(over="ignore"):
        inner = x + CUBIC * x * x * x
    return gated(x, 0.5 + 0.5 * np.tanh(math.sqrt(2.0 / math.pi) * inner))


CUBIC = 0.044715
"""The factor of x^3 in gelu's approximation by tanh."""

_GELUS = {"gelu": (_gelu, -0.7517915246935645), "gelu_tanh": (_gelu_tanh, -0.7524614220710162)}
"""The function of each kind, and where it is least."""


def per_channel(gamma: Array, rank: int) -> Array:
    """The slopes of act_type prelu, (channels,) or (1,), laid along axis 1 of a tensor of that rank."""
    return gamma.reshape(-1) if rank < 2 else gamma.reshape((1, -1) + (1,) * (rank - 2))


@operator("tanh")
class Tanh(FloatFunction):
    """The hyperbolic tangent, elementwise. Float only."""

    def evaluate(self, x: Array) -> Array:
        return np.tanh(x.astype(np.float64))

    def bounds(self, x: Interval) -> Interval:
        return x.map(lambda v: np.tanh(v.astype(np.float64)))


@operator("sigmoid")
class Sigmoid(FloatFunction):
    """1 / (1 + exp(-x)), elementwise. Float only."""

    def evaluate(self, x: Array) -> Array:
        return sigmoid(real(x))

    def bounds(self, x: Interval) -> Interval:
        return x.map(lambda v: sigmoid(real(v)))
