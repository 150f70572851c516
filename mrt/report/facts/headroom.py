"""What is proven of integer tensors, and how much of 32 bits that leaves."""

from __future__ import annotations

from mrt.symbol.strict_json import StrictModel


class ProvenTensor(StrictModel):
    """A tensor of the integer graph, or what its operator holds on the way (`is_inner`), and its bounds.

    operator: its name; input for an input. lo, hi: the proven bounds. bits: their width in two's complement, as a
    fraction: log2 of the wider side, and a sign. rule: what the bounds follow from. seen: the least and the greatest
    value that was met; None where none was looked at. seen_bits: the width of these. layer: the id of the layer that it
    belongs to; None where it belongs to none.
    """

    name: str
    operator: str
    dtype: str
    lo: int
    hi: int
    bits: float
    rule: str
    seen: list[int] | None = None
    seen_bits: float | None = None
    layer: int | None = None
    is_inner: bool = False


class Headroom(StrictModel):
    """The widest of a layer's integers, by what they are; None where it has none of that kind.

    sum: of sums of products and of additions, whose bits under 32 are to spare. product: of products element by
    element, such as those by which sums are rescaled, and of what normalizations and softmaxes add up; multipliers and
    scales are chosen as wide as 32 bits let them be, so that these are full on purpose.
    """

    sum: ProvenTensor | None
    product: ProvenTensor | None
