"""Kernels for any CPU: what is written by the instructions of the family folders, or by plain arithmetic."""
