"""Comparisons and logic."""

from __future__ import annotations

from mrt.frontend.relax.node import converter
from mrt.frontend.tvm.comparison import COMPARISONS, LOGIC, compare, logic

converter(*COMPARISONS)(compare)
converter(*LOGIC)(logic)
