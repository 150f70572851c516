"""Imports the algorithms of MRT, which registers them."""

from mrt.quantization.algorithms import (  # noqa: F401
    channel_choice,
    equalize,
    fast_bias_correction,
    gptq_rounding,
    historical_range,
    least_error_range,
    least_error_rounding,
    max_range,
    nearest_rounding,
    percentile_range,
    selected_bias_correction,
    sensitive_tensors,
    sequential_bias_correction,
    smooth,
)
