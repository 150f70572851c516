"""Calibration: ranges, means and mean squares of the tensors of a float graph over samples of real data."""

from mrt.calibration.options import CalibrationConfig
from mrt.calibration.ranges import Calibration, Channels, Needs, Range, Ranges
from mrt.calibration.run import calibrate

__all__ = ["Calibration", "CalibrationConfig", "Channels", "Needs", "Range", "Ranges", "calibrate"]
