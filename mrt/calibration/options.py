"""The options of calibration."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from mrt.algorithm_registry import naming
from mrt.options import Options


class CalibrationConfig(Options):
    """The `calibrate` section.

    method: the RangeMethod of this name: "max" covers every value observed; "historical" is MRT's; "percentile" leaves
    the outermost values out; "mse" takes the range with the least mean squared error.
    lambda: standard deviations that "historical" covers; MRT's own configurations use 10 to 18. percentile: of a
    hundred values, how many "percentile" covers. bits: the width that "mse" takes quantizers to have. samples: how many
    samples of the data to use, None for all. batch_size: the most samples that one core runs at once.
    stream_length: of a network with states, after how many samples these are what they are at first; None for never.
    """

    model_config = ConfigDict(populate_by_name=True)

    method: Annotated[str, naming("calibrate.method")] = "max"
    lambda_: float = Field(default=16.0, alias="lambda", gt=0, allow_inf_nan=False)
    percentile: float = Field(default=99.99, ge=50, le=100)
    bits: int = Field(default=8, ge=2, le=16)
    samples: int | None = Field(default=None, ge=1, strict=True)
    batch_size: int = Field(default=16, ge=1, strict=True)
    stream_length: int | None = Field(default=None, ge=1, strict=True)
