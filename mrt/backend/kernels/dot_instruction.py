"""What an instruction that adds up products is: a record. The folder of a family of CPUs holds those that it has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from mrt.backend.kernels.pairs_of_products import most_pair
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.types import INT32_MAX

INT16_HOLDS = ("int8", "uint8", "int16")
"""Dtypes whose values an int16 holds."""


@dataclass(frozen=True)
class DotInstruction(ABC):
    """An instruction that multiplies `depth` neighbours of the data by those of each lane's weights, exactly, in int32.

    llvm: LLVM's name of it. features: what a CPU must have, all of them. bits: of its vectors. data, weight: the dtypes
    of its factors. offsets: dtypes of data that it serves, each with what is added to a value to make it a `data`.
    weights: dtypes of weights that it serves. adds: whether it adds to the accumulator, and does not give the sums
    alone. widens: of one that adds up pairs of products in int16 and saturates, LLVM's name of the instruction that
    multiplies and adds up pairs of these. swaps: whether its factors, of which one has a sign and one has none, may
    change places. crosses: whether CPUs multiply in fewer units than they add in, so that one product of sums may take
    less time than two products (see `crossed_dot`).
    """

    llvm: str
    features: tuple[str, ...]
    bits: int
    data: str
    weight: str
    depth: int
    offsets: Mapping[str, int] = field(hash=False)
    weights: tuple[str, ...]
    adds: bool = True
    widens: str = ""
    swaps: bool = False
    crosses: bool = False

    def pairs(self, most: int) -> int:
        """How many pairs of products of any data with weights of up to `most` may be added up before their sum is
        widened."""
        return most_pair(DTYPE_RANGES[self.data][1]) // (2 * max(most, 1)) if self.widens else 0

    @abstractmethod
    def fits(self, offset: int, reach: int) -> bool:
        """Whether no sum can leave 32 bits, given that none of the graph's products in any order does.

        offset: what is added to the data. reach: what the absolute values of the weights of one output channel add up
        to at most.
        """


@dataclass(frozen=True)
class ByteDot(DotInstruction):
    """Four products of bytes; what is added to the data counts in the sums."""

    @classmethod
    def of(cls, llvm: str, features: tuple[str, ...], bits: int, data: str, widens: str = "") -> ByteDot:
        """data: int8 or uint8; data of the other sign is stored with 128 added, or taken off."""
        offsets = {"uint8": {"uint8": 0, "int8": 128}, "int8": {"int8": 0, "uint8": -128}}[data]
        swaps = data == "uint8" and not widens
        return cls(llvm, features, bits, data, "int8", 4, offsets, ("int8",), not widens, widens, swaps)

    def fits(self, offset: int, reach: int) -> bool:
        lo, hi = DTYPE_RANGES[self.data]
        return (max(-lo, hi) + abs(offset)) * reach <= INT32_MAX


@dataclass(frozen=True)
class Int16Dot(DotInstruction):
    """Two products of int16.

    Their sum is a partial one of the operator, which is proven to stay in 32 bits whatever is added first
    (`Operator.intermediates`): so no factors are too large.
    """

    @classmethod
    def of(cls, llvm: str, features: tuple[str, ...], bits: int, adds: bool, crosses: bool = False) -> Int16Dot:
        offsets = dict.fromkeys(INT16_HOLDS, 0)
        return cls(llvm, features, bits, "int16", "int16", 2, offsets, INT16_HOLDS, adds, crosses=crosses)

    def fits(self, offset: int, reach: int) -> bool:
        return True
