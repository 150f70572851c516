"""How a sum of products of an activation and a weight becomes integers: what all layers share."""

from expansions.reduction.expand import expand_reduction, reduction_demands
from expansions.reduction.form import Form

__all__ = ["Form", "expand_reduction", "reduction_demands"]
