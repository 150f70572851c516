"""Kernels: which instructions add up products, and the loops around them; what needs a family of CPUs in its folder."""
