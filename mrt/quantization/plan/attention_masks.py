"""Softmaxes whose scores are masked: what of the scores matters, and the bits that they need besides."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from mrt.calibration import Range
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.masks import masked_scores, passed_on, shared_out
from mrt.symbol.operators.normalization import Softmax
from mrt.symbol.operators.selection import Where

VANISHES = 16.0
"""A score that lies by this below the largest of its row has less than 2^-23 of its share: 16 bits do not hold it."""
MASK = -1000.0
"""A tensor that is added to scores and is 0 or as low as this forbids some."""


def masked_ranges(graph: Graph, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """The ranges that matter of all masked scores, and of what masks them and nothing else."""
    found: dict[str, Range] = {}
    lows: dict[Symbol, list[float]] = {}
    for symbol in reversed((*graph.inputs, *graph.symbols)):
        own, least = ranges[symbol.name], min(lows.get(symbol, [0.0]))
        if least < 0 and len(lows[symbol]) == len(graph.consumers[symbol]) and symbol not in graph.outputs:
            least = min(least, MASK)
            if own.lo < least:
                found[symbol.name] = Range(least, max(own.hi, least))
            for source in passed_on(symbol):
                lows.setdefault(source, []).append(least)
        matters, scores = masked_range(graph, symbol, ranges), masked_scores_of(graph, symbol, ranges)
        if matters is not None and scores is not None:
            found[symbol.name] = matters
            # What is chosen instead of scores forbids as it is, what is added to them below the highest.
            highest = 0.0 if isinstance(symbol.operator, Where) else max(ranges[scores.name].hi, 0.0)
            for mask in {*symbol.inputs[-2:]} - {scores}:
                lows.setdefault(mask, []).append(matters.lo - highest)
    return found


def masked_range(graph: Graph, symbol: Symbol, ranges: Mapping[str, Range]) -> Range | None:
    """The part of the range of masked scores that their softmaxes tell apart; None where that is not known.

    ranges: the calibrated ones. The largest of a row of scores X + M is at least min(X) + the row's max(M); what lies
    by VANISHES t or more below the least of these, t the temperature, has no share. Of a mask that is computed, or
    stands instead of X for the whole row, a row forbids some and not all: where it forbids all they are alike,
    saturated or not.
    """
    scores = masked_scores_of(graph, symbol, ranges)
    if scores is None:
        return None
    least = ranges[scores.name].lo
    for reader in graph.consumers[symbol]:
        operator = reader.operator
        if not isinstance(operator, Softmax):
            return None
        floor = _floor(graph, symbol, scores, operator.axis % symbol.type.rank)
        if floor is None:
            return None
        least = min(least, ranges[scores.name].lo + floor - VANISHES * (operator.temperature or 1.0))
    found = ranges[symbol.name]
    return Range(max(found.lo, min(least, found.hi)), found.hi)


def masked_scores_of(graph: Graph, symbol: Symbol, ranges: Mapping[str, Range]) -> Symbol | None:
    """The scores that `symbol` masks for softmaxes alone, by a constant or by a tensor of zeros and MASK or less."""
    found = masked_scores(graph, symbol)
    if found is None and not isinstance(symbol.operator, Where):
        operands = shared_out(graph, symbol)
        masks = [source for source in operands if ranges[source.name].lo <= MASK and ranges[source.name].hi == 0.0]
        found = next((source for source in operands if source not in masks), None) if len(masks) == 1 else None
    return found


def _floor(graph: Graph, symbol: Symbol, scores: Symbol, axis: int) -> float | None:
    """How far the largest of any row lies above the least of the scores, at least; None where nothing is known."""
    mask = next(source for source in symbol.inputs[-2:] if source is not scores)
    constant = graph.value(mask)
    if constant is None:
        return 0.0
    if isinstance(symbol.operator, Where):
        return 0.0 if _is_alike(constant, symbol.type.rank, axis) else None
    aligned = constant.reshape((1,) * (symbol.type.rank - constant.ndim) + constant.shape)
    return float(aligned.max(axis=axis).min())


def _is_alike(constant: Array, rank: int, axis: int) -> bool:
    """Whether a constant that is broadcast to `rank` axes holds one value along one of them."""
    place = axis - (rank - constant.ndim)
    return place < 0 or bool(np.all(constant == constant.take([0], axis=place)))


def extra_mask_bits(found: Range, scores: Range) -> int:
    """The bits by which masked scores of a range are wider than the scores at the same step."""
    reach, own = (max(abs(each.lo), abs(each.hi)) for each in (found, scores))
    return max(math.ceil(math.log2(reach / own)), 0) if own > 0 else 0
