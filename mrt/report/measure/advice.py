"""What would help a layer, and the line of a configuration that asks for it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mrt.messages import counted
from mrt.report.facts import Choice, Layer, Output

CLIPPED = 1e-3
"""Clipping this share of a layer's values, or more, is told: no bits bring back what is lost there."""
GOOD = 40.0
"""Decibels of an output from which on nothing is advised."""
ADVISED = {"activation": 16, "weight": 12}
"""Sums of products of weights with more bits seldom fit 32 bits."""
LEAST_GAIN = 0.1
"""Decibels below which a choice gains nothing."""
LEAST, MOST = 0.05, 0.99
"""Shares of the error for which bits are advised, and the most of it that they are said to take away."""


def with_advice(layers: Sequence[Layer], outputs: Sequence[Output] | None) -> list[Layer]:
    """The layers, and of those that make much of an error that counts, what would lower it by how much."""
    if are_good(outputs):
        return list(layers)
    return [layer.model_copy(update={"advice": _measured(layer) or _advice(layer)}) for layer in layers]


def are_good(outputs: Sequence[Output] | None) -> bool:
    return all(output.sqnr is None or output.sqnr >= GOOD for output in outputs or ())


def clips(layer: Layer) -> bool:
    """Whether values are lost there that no bits bring back."""
    return layer.values is not None and layer.values.clipped >= CLIPPED


def is_by_weights(layer: Layer) -> bool:
    """Whether rounding its weights makes more of the error than rounding what it gives."""
    shares = layer.shares
    return shares is not None and shares.weights is not None and shares.weights > shares.output


def override(layer: Layer) -> str:
    """The line that gives a layer more bits, where most of its error is made."""
    what = _rounded(layer)
    name = next((bits.name for bits in layer.bits if bits.what == what), layer.name)
    return f'    "{name}": {{{what}: {{bits: {ADVISED[what]}}}}}\n'


def _rounded(layer: Layer) -> str:
    return "weight" if is_by_weights(layer) else "activation"


def _measured(layer: Layer) -> str | None:
    """The best of what was tried; None where nothing was."""
    if not layer.choices:
        return None
    best = max(layer.choices, key=lambda each: each.gain)
    if best.gain < LEAST_GAIN:
        tried = counted(len(layer.choices), "simulated choice")
        return f"nothing of {tried} raises the outputs by {LEAST_GAIN} dB"
    cost = f", for {best.operations:.1%} more operations" if best.operations else ""
    return f"{said_of(best)} would raise the outputs by {best.gain:.1f} dB, as simulated{cost}"


def said_of(choice: Choice) -> str:
    """A choice in words."""
    owner = {"output": "what it gives", "input": f"its input {choice.name}", "weights": "its weights"}[choice.what]
    return f"{choice.option} for {owner}"


def _advice(layer: Layer) -> str | None:
    """None where the layer makes little, clips, or has the bits. Errors of layers are taken to add up."""
    what = _rounded(layer)
    share = 0.0 if layer.shares is None else (layer.shares.weights if what == "weight" else layer.shares.output) or 0.0
    has_bits = any(bits.what == what and bits.chosen >= ADVISED[what] for bits in layer.bits)
    if share < LEAST or has_bits or (what == "activation" and clips(layer)):
        return None
    gain = -10 * math.log10(1 - min(share, MOST))
    owner = "its weights" if what == "weight" else "what it gives"
    return f"{ADVISED[what]} bits for {owner} would raise the outputs by about {gain:.1f} dB, at a cost of time"
