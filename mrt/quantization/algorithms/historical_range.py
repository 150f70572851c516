"""The range that MRT takes: so many standard deviations around the mean."""

from __future__ import annotations

from mrt.calibration.channels import ChannelObserver
from mrt.calibration.observers import HistoricalObserver, Ranging
from mrt.calibration.options import CalibrationConfig
from mrt.quantization.algorithms.algorithm import RangeMethod, algorithm


@algorithm("historical")
class HistoricalRange(RangeMethod):
    """The largest reach of a sample, of `calibrate.lambda` standard deviations; see HistoricalObserver."""

    def observer(self, config: CalibrationConfig) -> Ranging:
        return HistoricalObserver(config.lambda_)

    def channel_observer(self, channels: int, config: CalibrationConfig) -> ChannelObserver:
        return ChannelObserver.of(channels, config.lambda_)
