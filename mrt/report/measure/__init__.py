"""Measuring what a report tells of a quantized network."""

from mrt.report.measure.measure import measure
from mrt.report.measure.subject import Subject

__all__ = ["Subject", "measure"]
