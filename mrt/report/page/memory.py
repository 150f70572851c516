"""The memory plan on the page: which tensor lies where while which functions run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mrt.report.facts import Layer, MemoryPlan, PlannedTensor, Report
from mrt.report.page.names import shortened
from mrt.report.page.numbers import size
from mrt.report.page.words import spelled

HEIGHT, WIDTH = 200.0, 1000.0
"""The chart's own units; it is stretched to the width of the page."""
LISTED = 100
"""Rows of the table, those of the largest."""


@dataclass(frozen=True)
class Block:
    """A tensor in the chart, in its units. at_peak: whether it lies there when most is needed. more: what hovering
    tells."""

    x: float
    y: float
    width: float
    height: float
    at_peak: bool
    more: str


def memory(report: Report) -> dict[str, Any]:
    """The bars of the whole, the chart and the rows; None where there are none."""
    plan = report.time.memory if report.time else None
    if plan is None or report.time is None:
        return {"memory": [], "plan": None}
    functions = [each.outputs[0] if each.outputs else "?" for each in report.time.functions]
    return {"memory": _bars(plan), "plan": _plan(plan, functions, {layer.id: layer for layer in report.layers})}


def _bars(plan: MemoryPlan) -> list[dict[str, Any]]:
    lines = [("parameters", "stay as they are", plan.parameters, "wgt")]
    if plan.arena is not None:
        lines.append(("tensors in between", "over each other where not needed at once", plan.arena, "act"))
    if plan.separate is not None:
        lines.append(("if each had its own place", "what the plan saves", plan.separate, "hatch"))
    most = max(bytes_ for _, _, bytes_, _ in lines) or 1
    return [{"name": n, "title": t, "bytes": b, "kind": k, "share": b / most} for n, t, b, k in lines]


def _plan(plan: MemoryPlan, functions: list[str], layers: Mapping[int, Layer]) -> dict[str, Any] | None:
    inner = [tensor for tensor in plan.tensors if not tensor.is_output]
    if not inner or not plan.arena or plan.peak_at is None or plan.peak is None:
        return None
    calls = max(len(functions), max(tensor.last for tensor in inner) + 1)
    at = functions[plan.peak_at] if plan.peak_at < len(functions) else str(plan.peak_at)
    listed = sorted(inner, key=lambda each: -each.bytes)[:LISTED]
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "blocks": [_block(each, plan, calls) for each in inner],
        "alive": _line(plan, calls),
        "peak_x": round((plan.peak_at + 0.5) / calls * WIDTH, 1),
        "said": _said(plan, at, calls),
        "rows": [_row(each, plan, layers) for each in sorted(listed, key=lambda each: (each.first, each.offset))],
        "left_out": plan.tensor_count - len(plan.tensors),
    }


def _said(plan: MemoryPlan, at: str, calls: int) -> str:
    gaps = (plan.arena or 0) - (plan.peak or 0)
    gap = f", {size(gaps)} of the {size(plan.arena)} are gaps" if gaps else ""
    return f"Most is needed at function {(plan.peak_at or 0) + 1} of {calls}, {at}: {size(plan.peak)}{gap}."


def _block(tensor: PlannedTensor, plan: MemoryPlan, calls: int) -> Block:
    whole = plan.arena or 1
    return Block(
        round(tensor.first / calls * WIDTH, 1),
        round(HEIGHT - (tensor.offset + tensor.bytes) / whole * HEIGHT, 1),
        round((tensor.last + 1 - tensor.first) / calls * WIDTH, 1),
        round(tensor.bytes / whole * HEIGHT, 1),
        _is_at_peak(tensor, plan),
        f"{', '.join(shortened(name, 60) for name in tensor.names[:3])}\n{_form(tensor)}, {size(tensor.bytes)}\n"
        f"functions {tensor.first + 1} to {tensor.last + 1}, from byte {tensor.offset}",
    )


def _line(plan: MemoryPlan, calls: int) -> str:
    """The bytes that are needed, as the points of a line; "" where they are not told."""
    whole = plan.arena or 1
    points = [(i + step, alive) for i, alive in enumerate(plan.alive) for step in (0, 1)]
    return " ".join(f"{x / calls * WIDTH:.1f},{HEIGHT - alive / whole * HEIGHT:.1f}" for x, alive in points)


def _row(tensor: PlannedTensor, plan: MemoryPlan, layers: Mapping[int, Layer]) -> list[str]:
    layer = None if tensor.layer is None else layers.get(tensor.layer)
    peak = " (at the peak)" if _is_at_peak(tensor, plan) else ""
    more = "" if len(tensor.names) == 1 else f" and {spelled(len(tensor.names) - 1, 'tensor')} over it"
    return [
        tensor.names[0] + more,
        "" if layer is None else layer.name,
        _form(tensor),
        size(tensor.bytes) + peak,
        str(tensor.offset),
        f"{tensor.first + 1} to {tensor.last + 1}",
    ]


def _form(tensor: PlannedTensor) -> str:
    return f"{tensor.dtype} {'×'.join(map(str, tensor.shape))}"


def _is_at_peak(tensor: PlannedTensor, plan: MemoryPlan) -> bool:
    return plan.peak_at is not None and tensor.first <= plan.peak_at <= tensor.last
