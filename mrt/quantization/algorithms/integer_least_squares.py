"""Integers q that make (t - w(q))' H (t - w(q)) small, w(q) = step * (q - zero point): one column after the other.

All arrays have the axes (groups, columns, rows): a row is one output channel (or one channel at one choice of scales),
its columns are what it is multiplied with, and all rows of a group share the group's H. Groups are apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mrt.symbol import Array

BLOCK = 64
"""Columns after which what they leave is brought to the columns behind them, by one product of matrices."""
SWEEPS = 20
DENSE = 0.3
"""Of so many rows as a share all are changed, since to pick them takes longer."""


@dataclass(frozen=True, eq=False)
class Metric:
    """What an error of the weights does: `matrix`, (groups, K, K), is positive definite."""

    matrix: Array

    @cached_property
    def order(self) -> Array:
        """(groups, K): the columns by falling diagonal."""
        return np.argsort(-np.diagonal(self.matrix, axis1=1, axis2=2), axis=1, kind="stable")

    @cached_property
    def factor(self) -> Array:
        """L, lower triangular, with L' L = H, the columns of H in their order; (groups, K, K)."""
        order = self.order[:, ::-1]
        backwards = np.take_along_axis(self.matrix, order[:, :, None], axis=1)
        backwards = np.take_along_axis(backwards, order[:, None], axis=2)
        return np.ascontiguousarray(np.linalg.cholesky(backwards)[:, ::-1, ::-1].transpose(0, 2, 1))

    def of(self, off: Array) -> Array:
        """e' H e for each row of `off`; (groups, rows)."""
        result: Array = np.einsum("gkr,gkr->gr", off, np.matmul(self.matrix, off))
        return result


@dataclass(frozen=True, eq=False)
class Steps:
    """What integers stand for: step * (q - zero), lo <= q <= hi. step, zero: (groups, K or 1, rows)."""

    step: Array
    zero: Array
    lo: int
    hi: int

    def real(self, integers: Array) -> Array:
        """What the integers stand for."""
        result: Array = self.step * (integers - self.zero)
        return result

    def nearest(self, values: Array) -> Array:
        """The integers next to real values; float64."""
        return self.limited(np.rint(values / self.step) + self.zero)

    def along(self, columns: Array) -> Steps:
        """With the columns in this order, (groups, K)."""
        if self.step.shape[1] == 1 and self.zero.shape[1] == 1:
            return self
        shape = (len(columns), columns.shape[1], self.step.shape[2])
        step, zero = (
            np.take_along_axis(np.broadcast_to(each, shape), columns[:, :, None], axis=1)
            for each in (self.step, self.zero)
        )
        return replace(self, step=step, zero=zero)

    def columns(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """step and zero of each column by itself, (groups, K, rows), without a copy."""
        return np.broadcast_to(self.step, shape), np.broadcast_to(self.zero, shape)

    def limited(self, values: Array) -> Array:
        """Whole numbers, each as near as lo and hi allow. NumPy's `clip` takes half as long again for a few hundred."""
        result: Array = np.minimum(np.maximum(values, self.lo), self.hi)
        return result

    def rows(self, taken: Array) -> Steps:
        """Of some rows."""
        return replace(self, step=self.step[:, :, taken], zero=self.zero[:, :, taken])


def successive(target: Array, metric: Metric, steps: Steps) -> tuple[Array, Array]:
    """Integers found column by column, each making up for those before, and their error (groups, rows).

    With L' L = H, L lower triangular, the error is sum_j (L_jj e_j + sum_(i<j) L_ji e_i)^2 for e = t - w(q): of falling
    diagonal, each q_j makes its own term as small as it can. It is what GPTQ finds, which changes the columns to come
    instead (E. Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers",
    2022), and Babai's nearest plane (L. Babai, "On Lovasz' lattice reduction and the nearest lattice point problem",
    1986).
    """
    order, factor = metric.order, metric.factor
    ordered = np.take_along_axis(target, order[:, :, None], axis=1)
    steps = steps.along(order)
    step, zero = steps.columns(ordered.shape)
    integers, off = np.empty_like(ordered), np.empty_like(ordered)
    error = np.zeros((len(target), target.shape[2]))
    for first in range(0, target.shape[1], BLOCK):
        last = min(first + BLOCK, target.shape[1])
        carried = np.matmul(factor[:, first:last, :first], off[:, :first])
        for place in range(first, last):
            before = (
                carried[:, place - first] + np.matmul(factor[:, place, None, first:place], off[:, first:place])[:, 0]
            )
            own = factor[:, place, place][:, None]
            wanted = (ordered[:, place] + before / own) / step[:, place]
            found = integers[:, place] = steps.limited(np.rint(wanted) + zero[:, place])
            off[:, place] = ordered[:, place] - step[:, place] * (found - zero[:, place])
            error += (own * off[:, place] + before) ** 2
    unordered = np.empty_like(integers)
    np.put_along_axis(unordered, order[:, :, None], integers, axis=1)
    return unordered, error


def descend(target: Array, metric: Metric, steps: Steps, integers: Array, sweeps: int = SWEEPS) -> tuple[Array, Array]:
    """`integers` moved by coordinate descent, and their error (groups, rows), which is never larger than before.

    Each column goes to where the error is least, the others as they are; at most so many sweeps over the rows that
    moved in the sweep before.
    """
    found = integers.copy()
    active = np.arange(target.shape[2])
    slope = np.matmul(metric.matrix, target - steps.real(found))
    error = np.zeros((len(target), target.shape[2]))
    for sweep in range(sweeps):
        part: Array = found[:, :, active]
        moved: Array = np.zeros(len(active), bool)
        rows = steps.rows(active)
        for first in range(0, target.shape[1], BLOCK):
            moved = np.logical_or(moved, _sweep_block(slice(first, first + BLOCK), metric.matrix, rows, part, slope))
        found[:, :, active] = part
        error[:, active] = np.einsum("gkr,gkr->gr", target[:, :, active] - rows.real(part), slope)
        if not moved.any() or sweep == sweeps - 1:
            break
        active, slope = active[moved], slope[:, :, moved]
    return found, error


def _sweep_block(block: slice, matrix: Array, steps: Steps, integers: Array, slope: Array) -> Array:
    """Moves the columns of a block in `integers`, and `slope` = H (t - w(q)) with them; which rows have moved."""
    start, stop = block.start, min(block.stop, integers.shape[1])
    change = np.zeros((len(integers), stop - start, integers.shape[2]))
    step = steps.columns(integers.shape)[0][:, start:stop]
    curvature = np.diagonal(matrix, axis1=1, axis2=2)[:, start:stop, None] * step
    for place in range(stop - start):
        column = start + place
        old = integers[:, column]
        moved = np.matmul(matrix[:, column, None, start:column], change[:, :place])[:, 0]
        new = steps.limited(np.rint(old + (slope[:, column] - moved) / curvature[:, place]))
        change[:, place] = (new - old) * step[:, place]
        integers[:, column] = new
    rows: Array = np.asarray(change.any(axis=(0, 1)))
    if rows.mean() > DENSE:
        slope -= np.matmul(matrix[:, :, start:stop], change)
    elif rows.any():
        at = np.flatnonzero(rows)
        slope[:, :, at] -= np.matmul(matrix[:, :, start:stop], change[:, :, at])
    return rows


def projections(target: Array, metric: Metric, real: Array) -> tuple[Array, Array]:
    """t' H w and w' H w of each row, (groups, rows): their ratio is the factor of w that is nearest to the target."""
    weighted = np.matmul(metric.matrix, real)
    return np.einsum("gkr,gkr->gr", weighted, target), np.einsum("gkr,gkr->gr", weighted, real)
