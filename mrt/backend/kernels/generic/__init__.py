"""Kernels that any machine runs."""
