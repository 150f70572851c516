"""Kernels for x86: vectors of words, table lookups, tiles."""
