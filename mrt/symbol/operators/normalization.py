"""Normalisations, softmax and its logarithm, float only, and what does nothing in use: Dropout, _copy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._checks import require_float
from mrt.symbol.operators._intervals import added, product, subtracted, unknown, without_nan
from mrt.symbol.types import TensorType, normalize_axis


@operator("BatchNorm", "BatchNorm_v1")
class BatchNorm(Operator):
    """gamma (x - moving_mean) / sqrt(moving_var + eps) + beta; all four (channels,) along `axis`. Float only.

    fix_gamma: gamma counts as 1, whatever it holds (MXNet's default).
    """

    family = "norm"

    eps: float = 1e-3
    fix_gamma: bool = True
    axis: int = 1

    ignored = frozenset(
        {"momentum", "use_global_stats", "output_mean_var", "cudnn_off", "min_calib_range", "max_calib_range"}
    )
    input_names = ("data", "gamma", "beta", "moving_mean", "moving_var")

    def infer(
        self, x: TensorType, gamma: TensorType, beta: TensorType, mean: TensorType, variance: TensorType
    ) -> TensorType:
        require_float(x)
        channels = (x.shape[normalize_axis(self.axis, x.rank)],)
        for name, parameter in zip(self.input_names[1:], (gamma, beta, mean, variance), strict=True):
            _require_shape(name, parameter, channels)
        return x

    def evaluate(self, x: Array, gamma: Array, beta: Array, mean: Array, variance: Array) -> Array:
        scale, offset = self.factors(gamma, beta, mean, variance)
        shape = _along(self.axis, x.ndim)
        result: Array = x.astype(np.float64) * scale.reshape(shape) + offset.reshape(shape)
        return result

    def factors(self, gamma: Array, beta: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
        """scale and offset, (channels,) in float64, with which the operator is x * scale + offset."""
        scale = 1.0 / np.sqrt(variance.astype(np.float64) + self.eps)
        scale = scale if self.fix_gamma else scale * gamma.astype(np.float64)
        return scale, beta.astype(np.float64) - mean.astype(np.float64) * scale

    def bounds(self, x: Interval, gamma: Interval, beta: Interval, mean: Interval, variance: Interval) -> Interval:
        with np.errstate(all="ignore"):
            deviation = [np.sqrt(bound + self.eps) for bound in (variance.lo, variance.hi)]
            scale = without_nan(Interval(1.0 / deviation[1], 1.0 / deviation[0], beta.shape))
        scale = scale if self.fix_gamma else product(scale, gamma, beta.shape)

        def along(v: Interval) -> Interval:
            shape = _along(self.axis, len(x.shape))
            return Interval(v.lo.reshape(shape), v.hi.reshape(shape), x.shape)

        return added(product(subtracted(x, along(mean), x.shape), along(scale), x.shape), along(beta), x.shape)

    def batch_obstacle(
        self, x: TensorType, gamma: TensorType, beta: TensorType, mean: TensorType, variance: TensorType
    ) -> str:
        return _over_batch(self.axis, x)


@operator("LayerNorm")
class LayerNorm(Operator):
    """gamma (x - mean) / sqrt(variance + eps) + beta, moments over `axis`; gamma and beta (length,). Float only."""

    family = "norm"

    axis: int = -1
    eps: float = 1e-5

    ignored = frozenset({"output_mean_var"})
    input_names = ("data", "gamma", "beta")

    @property
    def affine_axis(self) -> int:
        return self.axis

    def infer(self, x: TensorType, gamma: TensorType, beta: TensorType) -> TensorType:
        require_float(x)
        length = (x.shape[normalize_axis(self.axis, x.rank)],)
        _require_shape("gamma", gamma, length)
        _require_shape("beta", beta, length)
        return x

    def evaluate(self, x: Array, gamma: Array, beta: Array) -> Array:
        x = x.astype(np.float64)
        centred = x - x.mean(axis=self.axis, keepdims=True)
        variance = np.square(centred).mean(axis=self.axis, keepdims=True)
        shape = _along(self.axis, x.ndim)
        scale, offset = (parameter.astype(np.float64).reshape(shape) for parameter in (gamma, beta))
        result: Array = centred / np.sqrt(variance + self.eps) * scale + offset
        return result

    def bounds(self, x: Interval, gamma: Interval, beta: Interval) -> Interval:
        return unknown(x.shape)

    def batch_obstacle(self, x: TensorType, gamma: TensorType, beta: TensorType) -> str:
        return _over_batch(self.axis, x)


@dataclass(frozen=True)
class OverClasses(Operator):
    """What softmax and its logarithm share: an axis of classes, and a temperature by which the data is divided."""

    axis: int = -1
    temperature: float | None = None

    ignored = frozenset({"dtype", "use_length"})

    def infer(self, x: TensorType) -> TensorType:
        normalize_axis(self.axis, x.rank)
        if self.temperature is not None and not self.temperature > 0:
            raise GraphError(f"temperature is {self.temperature}; a positive number is needed")
        return require_float(x)

    def batch_obstacle(self, x: TensorType) -> str:
        return _over_batch(self.axis, x)

    def below_highest(self, x: Array) -> Array:
        """x / temperature less its maximum, float64: at most 0."""
        x = x.astype(np.float64) / (1.0 if self.temperature is None else self.temperature)
        result: Array = x - x.max(axis=self.axis, keepdims=True)
        return result


@operator("softmax")
class Softmax(OverClasses):
    """exp(x / temperature) over its sum along `axis`. Float only."""

    def evaluate(self, x: Array) -> Array:
        powers = np.exp(self.below_highest(x))
        result: Array = powers / powers.sum(axis=self.axis, keepdims=True)
        return result

    def bounds(self, x: Interval) -> Interval:
        return Interval.of(0.0, 1.0, x.shape)


@operator("log_softmax")
class LogSoftmax(OverClasses):
    """The logarithm of softmax: x / temperature - log(sum of exp(x / temperature) along `axis`). Float only."""

    def evaluate(self, x: Array) -> Array:
        below = self.below_highest(x)
        result: Array = below - np.log(np.exp(below).sum(axis=self.axis, keepdims=True))
        return result

    def bounds(self, x: Interval) -> Interval:
        return Interval.of(-np.inf, 0.0, x.shape)


@operator("Dropout")
class Dropout(Operator):
    """Drops elements with probability p while training; gives the data unchanged here."""

    p: float = 0.5

    keeps_scale = True
    keeps_order = True
    is_elementwise = True
    ignored = frozenset({"mode", "axes", "cudnn_off"})

    def infer(self, x: TensorType) -> TensorType:
        return x

    def evaluate(self, x: Array) -> Array:
        return x

    def bounds(self, x: Interval) -> Interval:
        return x


@operator("_copy", "identity", "BlockGrad", "stop_gradient")
class Identity(Operator):
    """The data unchanged."""

    keeps_scale = True
    keeps_order = True
    is_elementwise = True

    def infer(self, x: TensorType) -> TensorType:
        return x

    def evaluate(self, x: Array) -> Array:
        return x

    def bounds(self, x: Interval) -> Interval:
        return x


def _require_shape(name: str, parameter: TensorType, shape: tuple[int, ...]) -> None:
    require_float(parameter)
    if parameter.shape != shape:
        raise GraphError(f"{name} is {parameter}; shape {shape} is needed")


def _along(axis: int, rank: int) -> tuple[int, ...]:
    """The shape that lays a vector along an axis of a tensor of that rank."""
    shape = [1] * rank
    shape[axis] = -1
    return tuple(shape)


def _over_batch(axis: int, x: TensorType) -> str:
    return "axis 0 is normalised over" if normalize_axis(axis, x.rank) == 0 else ""
