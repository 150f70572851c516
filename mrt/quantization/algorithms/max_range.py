"""The range of all values."""

from __future__ import annotations

from typing import ClassVar

from mrt.calibration.observers import RangeObserver, Ranging
from mrt.calibration.options import CalibrationConfig
from mrt.quantization.algorithms.algorithm import RangeMethod, algorithm


@algorithm("max")
class MaxRange(RangeMethod):
    """From the least to the greatest value observed."""

    covers_all: ClassVar[bool] = True

    def observer(self, config: CalibrationConfig) -> Ranging:
        return RangeObserver()
