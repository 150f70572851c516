"""Measuring what a report tells of a quantized network."""
