"""Trained quantization in a float graph: the tensors whose integer form its quantizers fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mrt.quantization.constant_grids import ConstantGrid
from mrt.quantization.demand import Demand
from mrt.quantization.expansion import expansion_of
from mrt.quantization.plan.facts import FactPass
from mrt.quantization.quantizer import Target, symmetric_target
from mrt.symbol import Graph, Symbol
from mrt.symbol.operators.dot import Dot
from mrt.symbol.operators.fake_quantize import FakeQuantize
from mrt.symbol.operators.integer import Dequantize, Quantize
from mrt.symbol.operators.linear import BatchDot, FullyConnected

SUM_BITS = 30
"""Of what a layer adds up, so that its bias has room beside."""
FINE_BITS = 16
"""The width of inputs that no single grid serves: 2^8 steps within each step of an 8-bit quantizer."""


def brings_quantization(graph: Graph) -> bool:
    """Whether a float graph holds quantizers of its own."""
    return any(symbol.operator.is_trained_quantizer for symbol in graph.operators)


def fixed_targets(graph: Graph, given: Mapping[str, object]) -> dict[str, Target]:
    """The form of every tensor that trained quantization fixes, by name, as far as operators carry it on.

    given: the inputs whose integers the configuration says. Others are fixed where quantizers alone read them, also
    behind what moves them: an integer input is its integers, a float one takes the grid that its readers share.
    """
    found: dict[str, Target] = {}
    for symbol in graph.inputs:
        target = None if symbol.name in given else _of_input(graph, symbol)
        if target is not None:
            found[symbol.name] = target
    for symbol in graph.operators:
        sources = tuple(found.get(source.name) for source in symbol.inputs)
        target = expansion_of(symbol).trained_form(symbol, graph, sources)
        if target is not None:
            found[symbol.name] = target
    return found


def stated_grid(graph: Graph, symbol: Symbol) -> tuple[float, int] | None:
    """The scale and zero point by which a float graph, as read, takes the integers of an input for real values; None
    where it does not say them, or not the same ones for all elements."""
    readers = graph.consumers[symbol]
    stated: set[tuple[float, int]] = set()
    for reader in readers:
        parts = [graph.value(part) for part in reader.inputs[1:]] if isinstance(reader.operator, Dequantize) else []
        if not parts or any(part is None or part.size != 1 for part in parts):
            return None
        scale, *zero = (part.item() for part in parts if part is not None)
        stated.add((float(scale), int(zero[0]) if zero else 0))
    return stated.pop() if len(stated) == 1 else None


def interpolates(graph: Graph, symbol: Symbol) -> bool:
    """Whether a symbol is a linear map that keeps to the range of its data, or near it."""
    weight = graph.value(symbol.inputs[1]) if isinstance(symbol.operator, FullyConnected) else None
    return weight is not None and isinstance(symbol.operator, FullyConnected) and symbol.operator.interpolates(weight)


def unquantized_tensors(graph: Graph, fixed: Mapping[str, Target]) -> frozenset[str]:
    """What is rounded with at least FINE_BITS, in a network that brings quantizers: that network does not round it.

    It is what no quantizer fixes, something rounds, and no layer or matrix product reads, also behind what moves it:
    those would need wider products.
    """
    if not fixed:
        return frozenset()
    read: set[str] = set()
    rounded: set[str] = set()
    for symbol in reversed(graph.operators):
        for reader in graph.consumers[symbol]:
            operator = reader.operator
            is_layer = operator.weight_channel_axis is not None or isinstance(operator, (BatchDot, Dot))
            if (is_layer and not interpolates(graph, reader)) or (operator.keeps_scale and reader.name in read):
                read.add(symbol.name)
            wanted = expansion_of(reader).demands(reader, graph)[reader.inputs.index(symbol)]
            if wanted in (Demand.NARROW, Demand.CHANNELS):
                rounded.add(symbol.name)
    return frozenset(rounded - read - fixed.keys())


def input_bits(graph: Graph, fixed: Mapping[str, Target], constants: Mapping[str, ConstantGrid]) -> dict[str, int]:
    """The bits of inputs that no quantizer rounds, in a network that brings quantizers, by name; at most FINE_BITS.

    They are those at which the sums of all layers that read the input, of the integers that their weights came with,
    have room in 32 bits. None where something else reads it, or a weight of floats.
    """
    found: dict[str, int] = {}
    for symbol in graph.inputs if fixed else ():
        readers = _read_by(graph, symbol)
        weights = [constants.get(reader.inputs[1].name) for reader in readers if len(reader.inputs) > 1]
        axes = [reader.operator.weight_channel_axis for reader in readers]
        if symbol.name in fixed or not readers or len(weights) < len(readers):
            continue
        sums = [
            float(np.abs(weight.integers - weight.zero_point).sum(_all_but(axis, weight.integers.ndim)).max())
            for weight, axis in zip(weights, axes, strict=True)
            if weight is not None and axis is not None
        ]
        if len(sums) == len(readers):
            found[symbol.name] = int(np.clip(SUM_BITS - np.ceil(np.log2(max(*sums, 1.0))), 0, FINE_BITS))
    return found


def _all_but(axis: int, rank: int) -> tuple[int, ...]:
    return tuple(each for each in range(rank) if each != axis % rank)


def _of_input(graph: Graph, symbol: Symbol) -> Target | None:
    readers = _read_by(graph, symbol)
    if not readers:
        return None
    if symbol.type.is_integer:
        if all(isinstance(reader.operator, Dequantize) for reader in readers):
            info = np.iinfo(symbol.dtype)
            return Target(1.0, int(info.min), int(info.max), pinned=True)
        return None
    if not all(isinstance(reader.operator, (FakeQuantize, Quantize)) for reader in readers):
        return None
    grids = {expansion_of(reader).grid(reader, graph) for reader in readers}
    target = grids.pop() if len(grids) == 1 else None
    if target is None or target.groups is not None:
        target = _fine_target(graph, readers)
    # Real values are quantized by a float32 scale.
    return target and replace(target, scale=float(np.float32(target.scale)), pinned=False)


def _read_by(graph: Graph, symbol: Symbol) -> list[Symbol]:
    """What reads a tensor, also behind what only moves or limits it; none where it leaves the graph on a way."""
    found: dict[Symbol, None] = {}
    pending = [symbol]
    while pending:
        given = pending.pop()
        if given in graph.outputs or not graph.consumers[given]:
            return []
        for reader in graph.consumers[given]:
            carries = reader.operator.keeps_scale and expansion_of(reader).defers_rounding(reader)
            if not carries:
                found[reader] = None
            elif reader not in found:
                pending.append(reader)
    return list(found)


def _fine_target(graph: Graph, readers: list[Symbol]) -> Target | None:
    """A quantizer of FINE_BITS for an input that several quantizers read, or one of several scales or no integer zero.

    It covers all that they tell apart, so that none of them needs data; what they round it to differs from rounding the
    real value where that lies within half of its step of a tie. None where there is no such range.
    """
    told = _told_by(graph, readers)
    if told is None:
        return None
    lo, hi = told
    # A step more, so that what is beyond a limit stays beyond it.
    wider = 1 + 2.0 ** (2 - FINE_BITS)
    if lo <= 0 <= hi:
        return replace(symmetric_target(max(abs(lo), abs(hi)) * wider, FINE_BITS, signed=lo < 0), exact=True)
    # Far from zero the integers are spent on the range, and the zero point is none of them.
    top = 2 ** (FINE_BITS - 1) - 1
    scale = (hi - lo) / 2 * wider / top
    return Target(scale, -top, top, zero_point=-int(np.rint((lo + hi) / 2 / scale)), exact=True)


def saturation_range(graph: Graph, symbol: Symbol) -> tuple[float, float] | None:
    """The real range outside of which all saturates that reads a tensor, where quantizers alone do; None elsewhere."""
    return _told_by(graph, _read_by(graph, symbol))


def _told_by(graph: Graph, readers: Sequence[Symbol]) -> tuple[float, float] | None:
    """The range that these quantizers tell apart together; None where one is none, or has no limits of its own."""
    ranges = []
    for reader in readers:
        if not isinstance(reader.operator, (FakeQuantize, Quantize)):
            return None
        target = expansion_of(reader).grid(reader, graph)
        limits = [graph.value(source) for source in reader.inputs[1:3]]
        if target is not None:
            ranges.append(target.real_range)
        elif isinstance(reader.operator, FakeQuantize):
            ends = [float(end) for limit in limits if limit is not None for end in (limit.min(), limit.max())]
            ranges.append((min(ends, default=0.0), max(ends, default=0.0)))
    lo, hi = min((lo for lo, _ in ranges), default=0.0), max((hi for _, hi in ranges), default=0.0)
    return None if len(ranges) < len(readers) or lo == hi else (lo, hi)


FIXED_FORMS = FactPass("fixed", lambda facts: fixed_targets(facts.graph, facts.config.inputs))
