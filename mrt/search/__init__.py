"""`mrt tune`: the cheapest network whose metric falls by no more than is allowed.

This is a search among configurations of quantization. The tilings of kernels that `compile.tune` measures have nothing
to do with it (mrt/backend/tuning).
"""

from mrt.search.cost import objective_of
from mrt.search.outcome import Tuned
from mrt.search.tuner import tune

__all__ = ["Tuned", "objective_of", "tune"]
