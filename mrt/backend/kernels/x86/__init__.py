"""Kernels for x86, by the instructions that they need."""
