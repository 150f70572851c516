"""Simplifying the elementwise chains behind operators, by rules that keep every integer."""

from mrt.simplification.rule import Rule
from mrt.simplification.simplify import RULES, Rewritten, Simplified, SimplifyChains

__all__ = ["RULES", "Rewritten", "Rule", "Simplified", "SimplifyChains"]
