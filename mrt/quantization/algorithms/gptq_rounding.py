"""Weights are rounded so that what their layer gives changes least, by GPTQ and coordinate descent."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from mrt.blas import one_blas_thread
from mrt.calibration import Calibration
from mrt.calibration.layer_moments import LayerMoments
from mrt.errors import QuantizationError
from mrt.messages import counted
from mrt.quantization.algorithms.algorithm import (
    AtShares,
    Covering,
    Rounded,
    Rounding,
    UnroundedWeight,
    algorithm,
)
from mrt.quantization.algorithms.integer_least_squares import (
    SWEEPS,
    Metric,
    Steps,
    descend,
    projections,
    successive,
)
from mrt.quantization.algorithms.layer_memory import Found, Memory, Place
from mrt.quantization.algorithms.least_error_rounding import least_error_shares
from mrt.quantization.algorithms.nearest_rounding import nearest_integers
from mrt.quantization.options import WeightConfig
from mrt.symbol import Array, Symbol
from mrt.symbol.types import narrowest_dtype

FEW_BITS = 6
"""Below so many bits the weights are fitted to the layer's outputs, and far smaller scales are tried."""
SHARES_AT_FEW_BITS, SHARES = np.linspace(1.0, 0.4, 25), np.linspace(1.0, 0.9, 5)
LEAST_DAMPING, DAMPING = 0.05, 0.3
ROUNDS_AT_FEW_BITS, ROUNDS, FEW_SWEEPS = 2, 1, 3
"""How often the scale is fitted to the integers, and these to the scale; and how many sweeps that takes at 6 bits and
more, where little is left to gain."""
CHEAP, DEAR = 2**26, 2**28
"""Multiplications of H with all weights of a layer. Above CHEAP, scales of weights of 6 bits and more are those of the
largest weight and descent is one sweep, above DEAR none; under 6 bits every COARSER-th share is tried above DEAR."""
COARSER = 5
BLOCK = 2**22
"""Weights, one for each share that is tried, that are rounded at once."""


@algorithm("gptq")
class GptqRounding(Rounding):
    """Integers of least (t - w)' H (t - w) for each output channel, H the damped covariance of what is summed over.

    H = C + diag(l (diag C + mean diag C) / 2), C = cov(x, x), l = 0.05 + 0.3 K / N for K inputs and N positions: the
    fewer positions, the less is believed of what is off the diagonal. The target t is the float weight w0, or under 6
    bits what fits the layer's outputs y best: t = H^-1 (cov(x, y) + (H - C) w0), of least E|y - t x|^2 + (t - w0)'
    (H - C) (t - w0). Integers are found by `successive`, then moved by `descend`. The scale of each output channel is
    the best of 25 shares of that of the largest weight, from 0.4 to 1 (under 6 bits) or of 5 from 0.9, then fitted by
    least squares. Large layers get less (CHEAP, DEAR), and those of very many inputs are cut into runs of inputs, as if
    different runs were not correlated.

    Source: E. Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers",
    2022. Layers without moments are rounded to the nearest, under 6 bits at the scale of least squared error.
    """

    reads_moments: ClassVar[bool] = True

    def crosses(self, options: WeightConfig) -> bool:
        return options.bits < FEW_BITS

    def of_layer(self, layer: Symbol, observed: Calibration) -> Rounded:
        known = _known(layer, observed)
        return nearest_integers if known is None else known.integers

    def covering(self, layer: Symbol, observed: Calibration, options: WeightConfig) -> Covering | None:
        known = _known(layer, observed)
        if known is not None:
            return lambda at: known.shares(at, options)
        return least_error_shares(options) if options.bits < FEW_BITS else None

    def apart(self, layer: Symbol, observed: Calibration, options: WeightConfig) -> _Layer | None:
        known = _known(layer, observed)
        return None if known is None or known.memory.results else _Layer(known.moments, Memory(made={}), options.bits)

    def take(self, layer: Symbol, observed: Calibration, found: Mapping[Place, Found]) -> None:
        known = _known(layer, observed)
        if known is not None:
            known.memory.ahead.update(found)

    def notes(self, layers: Sequence[Symbol], observed: Calibration) -> tuple[str, ...]:
        """What was gained, and which layers were left alone."""
        if observed.moments is None:
            return ()
        left = observed.moments.left_alone
        found = [
            f"{each.name} ({each.op}): not rounded by gptq, {left[each.name]}" for each in layers if each.name in left
        ]
        gains = [gain for each in layers if (gain := _gain(observed.moments.layers.get(each.name))) is not None]
        if gains:
            middle = sorted(gains)[len(gains) // 2]
            found.append(
                f"the weights of {counted(len(gains), 'layer')} were rounded by gptq: the error that rounding leaves "
                f"in a layer's outputs is {middle:.1f} dB below that of rounding to the nearest, the median; "
                f"{min(gains):.1f} to {max(gains):.1f} dB"
            )
        return tuple(found)


_MEMORIES: WeakKeyDictionary[LayerMoments, Memory] = WeakKeyDictionary()


class _Latest(threading.local):
    """The metric of the layer that a thread was asked about last: they are large."""

    def __init__(self) -> None:
        self.metrics: WeakKeyDictionary[LayerMoments, Metric] = WeakKeyDictionary()


_LATEST = _Latest()


def _known(layer: Symbol, observed: Calibration) -> _Layer | None:
    """The layer's moments with what was computed of them; None where it is left alone."""
    known = observed.moments
    if known is None or not (layer.name in known.layers or layer.name in known.left_alone):
        raise QuantizationError(
            f"{layer.name} ({layer.op}): rounding by gptq needs the moments of what it reads, and they were not "
            f"gathered; give calibration data"
        )
    moments = known.layers.get(layer.name)
    return None if moments is None else _Layer(moments, _MEMORIES.setdefault(moments, Memory()))


@dataclass(frozen=True, eq=False)
class _Layer:
    """A layer whose weight is rounded. bits: at which it will be, as far as that is known."""

    moments: LayerMoments
    memory: Memory
    bits: int = 0

    @property
    def work(self) -> float:
        """About how many multiplications it takes at `bits`: a half for each share, one for each sweep."""
        if not self._tries_scales(self.bits):
            return self._work * (1.5 if self._work <= DEAR else 0.5)
        return self._work * (len(self._tried(self.bits)) / 2 + FEW_SWEEPS)

    def covering(self, options: WeightConfig) -> Covering:
        """Finds `shares`."""
        return lambda at: self.shares(at, options)

    def found(self) -> dict[Place, Found]:
        """All that was found here."""
        return dict(self.memory.made or {})

    def integers(self, weight: UnroundedWeight) -> Array:
        """The integers at settled scales: of those found and the nearest, for each channel, the ones that err less."""
        with one_blas_thread():
            return self.memory.answer(_key(weight), lambda: self._rounded(weight))

    def _rounded(self, weight: UnroundedWeight) -> Found:
        target, steps = self._target(weight), self._steps([weight])
        nearest = steps.nearest(self._columns(weight.values))
        errors = self.metric.of(target - steps.real(nearest))
        found, least = self._found(target, steps, weight)
        behind = self._of_outputs(least) > self._of_outputs(errors)
        found = np.where(self._for_parts(behind)[:, None], nearest, found)
        integers = self.moments.by_output(found).reshape(weight.values.shape)
        return Found(
            integers.astype(narrowest_dtype(weight.lo, weight.hi)),
            nearest=None if self._tries_scales(_bits(weight)) else float(errors.sum()),
            least=float(np.minimum(self._of_outputs(least), self._of_outputs(errors)).sum()),
        )

    def shares(self, at: AtShares, options: WeightConfig) -> Array:
        """The shares of the largest weight that scales cover at the least error, (O,)."""
        whole = at(np.ones(self._outputs))
        if not self._tries_scales(_bits(whole)):
            return np.ones(self._outputs)
        with one_blas_thread():
            return self.memory.answer(_key(whole) + options.scales.encode(), lambda: self._chosen(whole, at, options))

    def _chosen(self, whole: UnroundedWeight, at: AtShares, options: WeightConfig) -> Found:
        target, steps = self._target(whole), self._steps([whole])
        nearest = float(self.metric.of(target - steps.real(steps.nearest(self._columns(whole.values)))).sum())
        tried = self._tried(_bits(whole))
        errors = np.stack(list(self._errors(target, at, tried)))
        if options.scales == "layer":
            return Found(np.full(self._outputs, tried[errors.sum(axis=1).argmin()]), nearest=nearest)
        shares, start = self._fitted(target, at, tried[errors.argmin(axis=0)])
        lo, hi = int(start.min(initial=0)), int(start.max(initial=0))
        return Found(shares, start.astype(narrowest_dtype(lo, hi)), nearest)

    def _tried(self, bits: int) -> Array:
        """The shares that are tried."""
        if bits >= FEW_BITS:
            return SHARES
        return SHARES_AT_FEW_BITS[:: 1 if self._work <= DEAR else COARSER]

    def _tries_scales(self, bits: int) -> bool:
        """Whether scales other than that of the largest weight are tried: they gain little at many bits."""
        return bits < FEW_BITS or self._work <= CHEAP

    def _found(self, target: Array, steps: Steps, weight: UnroundedWeight) -> tuple[Array, Array]:
        """Integers and their error, (parts, O / groups), from what choosing the scales has left or anew."""
        start = self.memory.start
        tries_scales = self._tries_scales(_bits(weight))
        if start is None or not tries_scales:
            start, error = successive(target, self.metric, steps)
            if not tries_scales:
                return (start, error) if self._work > DEAR else descend(target, self.metric, steps, start, 1)
        else:
            start = np.clip(start + steps.zero, steps.lo, steps.hi)
        return descend(target, self.metric, steps, start, _sweeps(steps))

    def _of_outputs(self, errors: Array) -> Array:
        """(O,), or (rows of a group times groups,), the errors (parts, rows) of all runs."""
        total: Array = errors.reshape(self.moments.groups, self.moments.splits, -1).sum(axis=1)
        return total

    def _for_parts(self, values: Array) -> Array:
        """(groups, rows) for each of the parts."""
        return np.repeat(values, self.moments.splits, axis=0)

    @property
    def metric(self) -> Metric:
        """H, with its factor."""
        known = _LATEST.metrics
        found = known.get(self.moments)
        if found is None:
            known.clear()
            found = known[self.moments] = Metric(self._damped())
        return found

    @property
    def _work(self) -> int:
        """The multiplications of H with all weights."""
        inputs: int = self.moments.x.shape[1]
        return len(self.moments.y) * self.moments.splits * inputs**2

    @property
    def _outputs(self) -> int:
        return len(self.moments.y)

    @property
    def _ridge(self) -> Array:
        """(groups, K): the diagonal of H - C; ones for groups that read a constant."""
        power = self.moments.variance
        share = LEAST_DAMPING + DAMPING * power.shape[1] / self.moments.count
        mean = power.mean(axis=1, keepdims=True)
        ridge: Array = np.where(mean > 0, 0.5 * share * (power + mean), 1.0)
        return ridge

    def _damped(self) -> Array:
        """H."""
        matrix, places = self.moments.covariance, np.arange(self.moments.x.shape[1])
        matrix[:, places, places] += self._ridge
        return matrix

    def _target(self, weight: UnroundedWeight) -> Array:
        """(groups, K, O / groups): what the weights are to be."""
        float_weight, crossed = self._columns(weight.values), self.moments.cross_covariance
        if crossed is None or _bits(weight) >= FEW_BITS:
            return float_weight
        return np.linalg.solve(self.metric.matrix, crossed + self._ridge[:, :, None] * float_weight)

    def _errors(self, target: Array, at: AtShares, tried: Array) -> Iterator[Array]:
        """The error of each output channel at each of the shares, (O,)."""
        most = max(BLOCK // target.size, 1)
        for first in range(0, len(tried), most):
            shares = tried[first : first + most]
            steps = self._steps([at(np.full(self._outputs, share)) for share in shares.tolist()])
            errors = successive(np.tile(target, (1, 1, len(shares))), self.metric, steps)[1]
            by_share = self._of_outputs(errors).reshape(self.moments.groups, len(shares), -1)
            yield from by_share.transpose(1, 0, 2).reshape(len(shares), -1)

    def _fitted(self, target: Array, at: AtShares, shares: Array) -> tuple[Array, Array]:
        """The shares, one by one moved to where the scale fits the integers best, and these fit the scale; with the
        integers less their zero point."""
        metric, steps = self.metric, self._steps([at(shares)])
        sweeps = _sweeps(steps)
        found, error = descend(target, metric, steps, successive(target, metric, steps)[0], sweeps)
        for _ in range(ROUNDS_AT_FEW_BITS if sweeps == SWEEPS else ROUNDS):
            along, square = (self._of_outputs(each) for each in projections(target, metric, steps.real(found)))
            moved = shares * np.where((along > 0) & (square > 0), along / np.where(square > 0, square, 1), 1).reshape(
                -1
            )
            other = self._steps([at(moved)])
            start = np.clip(found - steps.zero + other.zero, other.lo, other.hi)
            tried, new = descend(target, metric, other, start, sweeps)
            better = self._of_outputs(new) < self._of_outputs(error)
            shares = np.where(better.reshape(-1), moved, shares)
            taken = self._for_parts(better)
            found, error = np.where(taken[:, None], tried, found), np.where(taken, new, error)
            steps = self._steps([at(shares)])
        return shares, found - steps.zero

    def _columns(self, values: Array) -> Array:
        """(O, I, ...) as (parts, K, O / groups); where one value stands for all inputs, (parts, 1, O / groups)."""
        rows = np.asarray(values, np.float64)
        if rows.size == len(rows):
            return np.repeat(rows.reshape(self.moments.groups, 1, -1), self.moments.splits, axis=0)
        inputs = self.moments.x.shape[1] * self.moments.splits
        rows = np.repeat(rows.reshape(*rows.shape[:2], -1), inputs // rows[0].size, axis=2)
        return self.moments.by_part(rows)

    def _steps(self, weights: Sequence[UnroundedWeight]) -> Steps:
        """The scales of these weights one after the other, as rows."""
        step, zero = (
            np.concatenate([self._columns(each) for each in every], axis=2)
            for every in ([w.steps for w in weights], [w.zero_points for w in weights])
        )
        return Steps(step, zero, weights[0].lo, weights[0].hi)


def _bits(weight: UnroundedWeight | Steps) -> int:
    """The width of its integers."""
    return (weight.hi - weight.lo).bit_length()


def _sweeps(steps: Steps) -> int:
    """How many sweeps of descent there are at most."""
    return SWEEPS if _bits(steps) < FEW_BITS else FEW_SWEEPS


def _key(weight: UnroundedWeight) -> bytes:
    """What tells one weight at its scales from another."""
    digest = hashlib.sha256(f"{weight.values.shape} {weight.lo} {weight.hi}".encode())
    for array in (weight.values, weight.steps, weight.zero_points):
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


def _gain(moments: LayerMoments | None) -> float | None:
    """By how many dB the error was lowered; None where the layer was not rounded."""
    memory = None if moments is None else _MEMORIES.get(moments)
    return None if memory is None else memory.gain
