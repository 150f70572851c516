"""The range that leaves the outermost values out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.calibration.histogram import HALF, Histogram, HistogramObserver
from mrt.calibration.observers import Ranging
from mrt.calibration.options import CalibrationConfig
from mrt.quantization.algorithms.algorithm import RangeMethod, algorithm


@dataclass(frozen=True)
class Percentile:
    """All but the outermost values: at each end at most (100 - percent) / 2 of a hundred are left out.

    The ends are edges of bins, the nearest that leave out no more.
    """

    percent: float

    def __call__(self, seen: Histogram) -> tuple[float, float]:
        allowed = float(seen.counts.sum()) * (100.0 - self.percent) / 200.0
        below = int(np.count_nonzero(np.cumsum(seen.counts) <= allowed))
        above = int(np.count_nonzero(np.cumsum(seen.counts[::-1]) <= allowed))
        return (below - HALF) * seen.width, (HALF - above) * seen.width


@algorithm("percentile")
class PercentileRange(RangeMethod):
    """All but the outermost values, `calibrate.percentile` of a hundred."""

    def observer(self, config: CalibrationConfig) -> Ranging:
        return HistogramObserver(Percentile(config.percentile))
