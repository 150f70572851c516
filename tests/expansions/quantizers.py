"""Configurations of eight bits by their quantizers, and what such integers may cost."""

from __future__ import annotations

from mrt.quantization.options import QuantizationConfig

EIGHT_BITS = 0.03
"""Share of the largest output that 8-bit inputs and weights may cost in one operator."""


def quantizers(activation: str, weight: str = "symmetric", **of_weight: object) -> QuantizationConfig:
    """of_weight: further options of the weight."""
    return QuantizationConfig.model_validate(
        {"activation": {"quantizer": activation}, "weight": {"quantizer": weight, **of_weight}}
    )
