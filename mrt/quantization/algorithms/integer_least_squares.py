"""Integers q that make (t - w(q))' H (t - w(q)) small, w(q) = step * (q - zero point): one column after the other.

All arrays have the axes (groups, columns, rows): a row is one output channel (or one channel at one choice of scales),
its columns are what it is multiplied with, and all rows of a group share the group's H.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mrt.symbol import Array

BLOCK = 64
"""Columns after which what they leave is brought to the columns behind them, by one product of matrices."""
SWEEPS = 20


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
        """R, upper triangular, with R R' = H, the columns of H in their order; (groups, K, K)."""
        order = self.order[:, ::-1]
        sorted_ = np.take_along_axis(self.matrix, order[:, :, None], axis=1)
        sorted_ = np.take_along_axis(sorted_, order[:, None], axis=2)
        return np.linalg.cholesky(sorted_)[:, ::-1, ::-1]

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
        result: Array = np.clip(np.rint(values / self.step) + self.zero, self.lo, self.hi)
        return result

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

    def column(self, place: int) -> Steps:
        """Of one column."""
        step, zero = (each if each.shape[1] == 1 else each[:, place : place + 1] for each in (self.step, self.zero))
        return replace(self, step=step, zero=zero)

    def rows(self, taken: Array) -> Steps:
        """Of some rows."""
        return replace(self, step=self.step[:, :, taken], zero=self.zero[:, :, taken])


def successive(target: Array, metric: Metric, steps: Steps) -> tuple[Array, Array]:
    """Integers found column by column, each making up for those before, and their error (groups, rows).

    With R R' = H, R upper triangular, the error is sum_j (R_jj e_j + sum_(i<j) R_ij e_i)^2 for e = t - w(q): of falling
    diagonal, each q_j makes its own term as small as it can. It is what GPTQ finds, which changes the columns to come
    instead (E. Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers",
    2022), and Babai's nearest plane (L. Babai, "On Lovasz' lattice reduction and the nearest lattice point problem",
    1986).
    """
    order, factor = metric.order, metric.factor
    ordered = np.take_along_axis(target, order[:, :, None], axis=1)
    steps = steps.along(order)
    integers, off = np.empty_like(ordered), np.empty_like(ordered)
    error = np.zeros((len(target), target.shape[2]))
    for first in range(0, target.shape[1], BLOCK):
        last = min(first + BLOCK, target.shape[1])
        carried = np.matmul(factor[:, :first, first:last].transpose(0, 2, 1), off[:, :first])
        for place in range(first, last):
            weights = factor[:, first:place, place]
            before = carried[:, place - first] + np.matmul(weights[:, None], off[:, first:place])[:, 0]
            own, column = factor[:, place, place][:, None], steps.column(place)
            found = column.nearest((ordered[:, place] + before / own)[:, None])
            integers[:, place] = found[:, 0]
            off[:, place] = ordered[:, place] - column.real(found)[:, 0]
            error += (own * off[:, place] + before) ** 2
    unordered = np.empty_like(integers)
    np.put_along_axis(unordered, order[:, :, None], integers, axis=1)
    return unordered, error


def descend(target: Array, metric: Metric, steps: Steps, integers: Array) -> Array:
    """`integers` moved by coordinate descent: each column to where the error is least, the others as they are.

    At most SWEEPS sweeps over the rows that moved in the sweep before; the error never rises.
    """
    found = integers.copy()
    active = np.arange(target.shape[2])
    slope = np.matmul(metric.matrix, target - steps.real(found))
    for _ in range(SWEEPS):
        part: Array = found[:, :, active]
        moved: Array = np.zeros(len(active), bool)
        rows = steps.rows(active)
        for first in range(0, target.shape[1], BLOCK):
            moved = np.logical_or(moved, _sweep_block(slice(first, first + BLOCK), metric.matrix, rows, part, slope))
        found[:, :, active] = part
        if not moved.any():
            break
        active, slope = active[moved], slope[:, :, moved]
    return found


def _sweep_block(block: slice, matrix: Array, steps: Steps, integers: Array, slope: Array) -> Array:
    """Moves the columns of a block in `integers`, and `slope` = H (t - w(q)) with them; which rows have moved."""
    here = slope[:, block].copy()
    change = np.zeros_like(here)
    for place in range(here.shape[1]):
        column = block.start + place
        own, grid = matrix[:, column, column][:, None], steps.column(column)
        old = integers[:, column]
        step = grid.step[:, 0]
        new = np.clip(np.rint(old + here[:, place] / (own * step)), grid.lo, grid.hi)
        at = np.flatnonzero((new != old).any(axis=0))
        if at.size:
            change[:, place, at] = ((new - old) * step)[:, at]
            here[:, :, at] -= matrix[:, block, column][:, :, None] * change[:, place, at][:, None]
            integers[:, column] = new
    moved: Array = np.asarray(change.any(axis=(0, 1)))
    at = np.flatnonzero(moved)
    if at.size:
        slope[:, :, at] -= np.matmul(matrix[:, :, block], change[:, :, at])
    return moved


def least_squares_factor(target: Array, metric: Metric, real: Array) -> Array:
    """(groups, rows): the a at which a * real is nearest to the target, where it is positive; else 1."""
    weighted = np.matmul(metric.matrix, real)
    along, square = (np.einsum("gkr,gkr->gr", weighted, each) for each in (target, real))
    factor = np.divide(along, square, out=np.ones_like(along), where=square > 0)
    return np.where(factor > 0, factor, 1.0)
