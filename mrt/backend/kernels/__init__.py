"""Kernels: how the products and sums of the heavy operators are formed on a machine, one file per family."""
