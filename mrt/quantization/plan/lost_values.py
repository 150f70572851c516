"""Where the integers say nothing although the network does: ranges that no scale resolves, outputs that are fixed."""

from __future__ import annotations

from collections.abc import Mapping

from mrt.calibration import Range
from mrt.quantization.expansion import named
from mrt.quantization.quantizer import largest
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Interval, Symbol


def unresolved_range_notes(plan: Plan, calibrated: Mapping[str, Range]) -> tuple[str, ...]:
    """Notes on the data and the tensors of which no integer but that of 0 is left.

    calibrated: those that calibration found.

    1. An input was 0 throughout calibration: its quantizer has scale 1, whatever comes later.
    2. The range of a tensor is so small that a scale for it would be no normal float32: its values round to 0.
    """
    unseen = [s.name for s in plan.graph.inputs if calibrated.get(s.name) == Range(0.0, 0.0) and s.type.is_float]
    lost = [
        symbol.name
        for symbol in dict.fromkeys((*plan.graph.inputs, *plan.graph.operators))
        if plan[symbol].fixed is None and 0 < 2 * plan[symbol].magnitude < plan[symbol].own.scale
    ]
    notes = [
        f"input {name} was 0 throughout calibration, so that nothing is known of its range; calibrate on samples that "
        f"are like those to come"
        for name in unseen
        if name not in plan.config.inputs
    ]
    if lost:
        greatest = max(plan.tensors[name].magnitude for name in lost)
        notes.append(
            f"0 for every input, since values of at most {greatest:.3g} are too small for a float32 scale: "
            f"{named(lost)}; scale the weights or the data of the network"
        )
    return tuple(notes)


def fixed_output_note(symbol: Symbol, found: Range, bounds: Interval, bits: int) -> str | None:
    """A note where an output is proven to be the same for every input, and calibration saw it vary; None elsewhere.

    found: its calibrated range. bounds: of its integers, which may have so many bits. It varies if the range of a
    channel is wider than a step of such a quantizer; where channels were not observed their constants may differ, so
    that this is known of one constant for all only.
    """
    if not bounds.is_constant:
        return None
    ends = found.channels or (((found.lo, found.hi),) if bounds.min == bounds.max else ())
    width = max((hi - lo for lo, hi in ends), default=0.0)
    if width <= found.magnitude / largest(bits):
        return None
    return (
        f"output {symbol.name} is the same for every input, though calibration saw it vary by {width:.3g}: quantizers "
        f"before it do not tell that apart; raise their bits, split their scales (granularity), or scale the network's "
        f"weights"
    )
