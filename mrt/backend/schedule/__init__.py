"""Loops: which are parallel, vectorized or on the stack, and what a choice costs."""
