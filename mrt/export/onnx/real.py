"""The whole of a quantized model in ONNX: real values in, integers between, real values out, the float tail behind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from mrt.backend.rewrites.with_quantizers import with_quantizers
from mrt.errors import UnsupportedOperatorError
from mrt.export.description import FORMAT_VERSION
from mrt.export.onnx.model import written_model
from mrt.export.onnx.node import REAL_EXPORTERS, Node, Value, find_exporter
from mrt.export.registry import Exporter
from mrt.symbol import Graph, Interval, Symbol
from mrt.symbol.bounds import analyse_bounds
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.symbol.states import compact, places_behind, states_of


def to_real_onnx(
    graph: Graph,
    inputs: Sequence[TensorQuantization],
    outputs: Sequence[TensorQuantization],
    postprocess: Graph | None,
    digest: str,
) -> onnx.ModelProto:
    """The ONNX model of a quantized model from float32 inputs to float32 outputs; inputs given as integers stay so.

    The integers are those of `to_onnx`, quantized as `TensorQuantization.quantize` does; NaN is not refused. Real
    outputs are exact where there is no float tail, else as near as floats are computed. metadata_props holds
    mrt.format_version, mrt.digest, mrt.ends: "float", and mrt.states, whose `initial` is real.
    Raises UnsupportedOperatorError listing every operator that cannot be written, those of the tail among them, and
    what `to_onnx` does.
    """
    whole = with_quantizers(graph, inputs, outputs, postprocess)
    intervals = dict(analyse_bounds(graph, {e.name: Interval.of(e.lo, e.hi, e.shape) for e in inputs}))
    for symbol in whole.operators:
        if symbol.inputs[0] in whole.inputs and symbol.inputs[0].type.is_float and not symbol.type.is_float:
            intervals[symbol.name] = intervals[symbol.inputs[0].name]
    _check_covered(whole, intervals)

    def description(names: Sequence[str]) -> dict[str, str]:
        found = {"mrt.format_version": str(FORMAT_VERSION), "mrt.digest": digest, "mrt.ends": "float"}
        states = _states(graph, inputs, postprocess, names)
        return found | ({"mrt.states": json.dumps(states)} if states else {})

    return written_model(whole, intervals, _exporter, description)


def _states(
    graph: Graph, inputs: Sequence[TensorQuantization], postprocess: Graph | None, names: Sequence[str]
) -> list[dict[str, Any]]:
    states, entries = states_of(graph), {entry.name: entry for entry in inputs}
    return [
        {
            "input": state.name,
            "output": names[place],
            "initial": compact(entries[state.name].dequantize(entries[state.name].filled(state.first))),
        }
        for state, place in zip(states, places_behind(states, postprocess), strict=True)
    ]


def _is_real(symbol: Symbol) -> bool:
    return any(each.type.is_float for each in (symbol, *symbol.inputs))


def _exporter(symbol: Symbol) -> Exporter[Any, Node, Value]:
    return (REAL_EXPORTERS.find if _is_real(symbol) else find_exporter)(symbol.operator)


def _check_covered(graph: Graph, intervals: Mapping[str, Interval]) -> None:
    """UnsupportedOperatorError listing every operator without an exporter, and integers that are no part of the
    integer graph, of whose bounds nothing is known."""
    refused: dict[str, list[str]] = {}
    for symbol in graph.operators:
        try:
            _exporter(symbol)
        except UnsupportedOperatorError:
            refused.setdefault(f"{symbol.op} of {symbol.dtype}", []).append(symbol.name)
            continue
        if not _is_real(symbol) and symbol.name not in intervals:
            refused.setdefault(f"{symbol.op} of integers in the float tail", []).append(symbol.name)
    if refused:
        found = "; ".join(f"{what} ({len(names)}: {', '.join(names[:3])})" for what, names in refused.items())
        raise UnsupportedOperatorError(
            f"these operators are not written to ONNX with real ends: {found}; export the integers alone "
            f"(--ends integer), and compute what is behind them from their scales"
        )
