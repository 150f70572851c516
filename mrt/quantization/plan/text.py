"""The plan as a text, for people."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from mrt.errors import ConfigError
from mrt.quantization.quantizer import Target
from mrt.quantization.tensor_plan import UNLIMITED, Plan, TensorPlan
from mrt.symbol import Symbol


def plan_text(plan: Plan, name: str | None = None) -> str:
    """What becomes of every tensor that is no parameter, in order; of one, where a name is given.

    Raises ConfigError for a name that the plan does not have.
    """
    if name is not None:
        if name not in plan.graph.by_name:
            raise ConfigError(f"{name} is no tensor of the prepared graph{_nearest(name, plan)}")
        return "\n".join(_lines(plan, plan.graph.by_name[name]))
    symbols = dict.fromkeys((*plan.graph.inputs, *plan.graph.operators))
    return "\n".join([*(line for symbol in symbols for line in _lines(plan, symbol)), *_left_alone(plan)])


def _nearest(name: str, plan: Plan) -> str:
    near = get_close_matches(name, plan.graph.by_name)
    return f"; the nearest are {', '.join(near)}" if near else "; without --symbol all are shown"


def _lines(plan: Plan, symbol: Symbol) -> Iterator[str]:
    tensor = plan[symbol]
    kind = "input" if symbol.is_variable else symbol.op
    yield f"{symbol.name} ({kind}): [{tensor.range.lo:.6g}, {tensor.range.hi:.6g}]"
    kind = "fixed by the network" if tensor.fixed is not None else "own"
    yield f"    {kind}: {target_text(tensor.own)}"
    if tensor.used is not None:
        yield f"    readers tell apart: [{tensor.used.lo:.6g}, {tensor.used.hi:.6g}]"
    if tensor.grouped is not None and tensor.grouped is not tensor.fixed:
        yield f"    channels: {target_text(tensor.grouped)}"
    for (reader, index), target in tensor.edges.items():
        taken = "as it is" if target is None else _short(target, tensor)
        yield f"    to {reader}, input {index}: {taken}"
    if symbol in plan.graph.outputs:
        yield f"    output: {target_text(tensor.output)}"
    yield from _rescaling(tensor)


def _short(target: Target, tensor: TensorPlan) -> str:
    """A target, by its name where it is one of the tensor's own."""
    names = {"own": tensor.own, "channels": tensor.grouped, "the part that readers tell apart": tensor.narrow}
    return next((f"at {name}" for name, own in names.items() if target is own), target_text(target))


def _rescaling(tensor: TensorPlan) -> Iterator[str]:
    if tensor.next_target is not None:
        yield f"    rescaled next to: {target_text(tensor.next_target)}"
    for index, part in enumerate(tensor.parts or ()):
        yield f"    its input {index} at: {target_text(part)}"
    if tensor.guard_bits:
        yield f"    its operands at: scale {tensor.common_scale:.6g}"


def target_text(target: Target) -> str:
    """A target as text, such as `[-127, 127], scale 0.0123, zero point 3`; without limits where it has none."""
    said = [] if target.hi >= UNLIMITED else [f"[{target.lo}, {target.hi}]"]
    said.append(f"scale {target.scale:.6g}")
    if target.groups is not None:
        factors = target.groups.factors
        said.append(f"{len(factors)} groups of {target.groups.step} along axis {target.groups.axis}")
        said.append(f"factors {min(factors)} to {max(factors)}")
    elif target.zero_point:
        said.append(f"zero point {target.zero_point}")
    said += ["pinned"] if target.pinned else []
    return ", ".join(said)


def _left_alone(plan: Plan) -> Iterator[str]:
    yield from (f"left alone: {reason}" for reason in plan.left_alone)
