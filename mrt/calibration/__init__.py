"""Calibration: the range of every tensor of a float graph over samples of real data."""

from mrt.calibration.run import calibrate
from mrt.calibration.thresholds import CalibrationConfig, Threshold, Thresholds

__all__ = ["CalibrationConfig", "Threshold", "Thresholds", "calibrate"]
