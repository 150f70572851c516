"""An ordinary configuration that says what a search chose."""

from __future__ import annotations

from pathlib import Path

from mrt.config import RunConfig
from mrt.quantization.options import QuantizationConfig


def tuned_config(config: RunConfig, quantize: QuantizationConfig, output: Path) -> RunConfig:
    """The run of `quantize`, whose results go to `output`."""
    return config.model_copy(update={"quantize": quantize, "output": output})
