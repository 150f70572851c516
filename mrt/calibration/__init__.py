"""Calibration: ranges and means of the tensors of a float graph over samples of real data."""

from mrt.calibration.run import calibrate
from mrt.calibration.thresholds import Calibration, CalibrationConfig, Channels, Range, Thresholds

__all__ = ["Calibration", "CalibrationConfig", "Channels", "Range", "Thresholds", "calibrate"]
