"""Algorithms of quantization, one file each."""
