"""The range that a quantizer covers with the least mean squared error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.calibration.histogram import HALF, Histogram, HistogramObserver
from mrt.calibration.observers import Ranging
from mrt.calibration.options import CalibrationConfig
from mrt.quantization.algorithms.algorithm import RangeMethod, algorithm


@dataclass(frozen=True)
class LeastError:
    """The range [-t, t], as far as values were seen, with the least mean squared error of a quantizer of `bits` bits.

    A value within has the error step² / 12, step being the range, 0 included, over 2^bits - 1; one beyond has its
    distance from the range, squared; those in the bin at 0 have none. t is an edge of a bin, the largest of equal ones.
    Source of step² / 12: W. R. Bennett, "Spectra of Quantized Signals", 1948.
    """

    bits: int

    def __call__(self, seen: Histogram) -> tuple[float, float]:
        magnitudes = (seen.counts[HALF:] + seen.counts[HALF - 1 :: -1]).astype(np.float64)
        centers, edges = np.arange(HALF) + 0.5, np.arange(1.0, HALF + 1)
        # Of the bins from each edge on: their values, the sums of these and of their squares.
        number, total, square = (
            np.append(np.cumsum((magnitudes * centers**power)[::-1])[::-1], 0.0)[1:] for power in range(3)
        )
        beyond = square - 2.0 * edges * total + edges**2 * number
        filled = np.flatnonzero(seen.counts) - HALF
        lowest, highest = (int(filled[0]), int(filled[-1]) + 1) if filled.size else (0, 0)
        step = (np.minimum(edges, max(highest, 0)) + np.minimum(edges, max(-lowest, 0))) / (2.0**self.bits - 1.0)
        inside = magnitudes.sum() - number - magnitudes[0]
        error = beyond + inside * step**2 / 12.0
        reach = (HALF - int(np.argmin(error[::-1]))) * seen.width
        return -reach, reach


@algorithm("mse")
class LeastErrorRange(RangeMethod):
    """What a quantizer of `calibrate.bits` bits covers with the least mean squared error."""

    def observer(self, config: CalibrationConfig) -> Ranging:
        return HistogramObserver(LeastError(config.bits))
