"""MXNet's codes of a shape, which Reshape takes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mrt.errors import GraphError
from mrt.symbol.limits import MAX_RANK
from mrt.symbol.types import TensorType


def decoded(shape: tuple[int, ...], x: TensorType, reverse: bool) -> tuple[int, ...]:
    """The shape that the codes `shape` mean for a tensor of the type `x`; GraphError where they do not fit it.

    reverse: the codes are matched from the right.
    """
    if len(shape) > 3 * MAX_RANK:  # the most codes that an axis takes
        raise GraphError(f"shape has {len(shape)} codes; at most {MAX_RANK} axes are needed")
    turn = -1 if reverse else 1
    return _Decoding(shape, x, shape[::turn], x.shape[::turn]).result()[::turn]


class _Decoding:
    """Codes that are matched with the axes of a tensor, from the left."""

    def __init__(self, shape: tuple[int, ...], x: TensorType, codes: Sequence[int], source: Sequence[int]) -> None:
        """shape, x: what errors name."""
        self._shape, self._x = shape, x
        self._codes, self._source = list(codes), list(source)
        self._elements = prod(source)
        self._made: list[int] = []
        self._free: int | None = None

    def result(self) -> tuple[int, ...]:
        while self._codes:
            self._match(self._codes.pop(0))
        if self._free is not None:
            if prod(self._made) == 0 or self._elements % prod(self._made):
                raise self._wrong("nothing fits -1")
            self._made[self._free] = self._elements // prod(self._made)
        if prod(self._made) != self._elements:
            raise self._wrong(f"it holds {prod(self._made)} elements")
        return tuple(self._made)

    def _match(self, code: int) -> None:
        match code:
            case 0:
                self._made.append(self._take())
            case -1:
                if self._free is not None:
                    raise self._wrong("-1 stands twice")
                self._free = len(self._made)
                self._pass(1)
            case -2:
                self._made += self._source
                self._source = []
            case -3:
                self._made.append(self._take() * self._take())
            case -4:
                if len(self._codes) < 2:
                    raise self._wrong("-4 needs two lengths after it")
                self._made += self._split(self._take(), self._codes.pop(0), self._codes.pop(0))
            case _ if code > 0:
                self._pass(code)
            case _:
                raise self._wrong(f"{code} is no code")

    def _pass(self, length: int) -> None:
        """A length of its own, which passes one axis of the tensor, if there is one left."""
        self._made.append(length)
        self._source = self._source[1:]

    def _take(self) -> int:
        if not self._source:
            raise self._wrong("it names more axes than there are")
        return self._source.pop(0)

    def _split(self, length: int, first: int, second: int) -> tuple[int, int]:
        if first == -1 and second > 0:
            first = length // second
        elif second == -1 and first > 0:
            second = length // first
        if first < 0 or second < 0 or first * second != length:
            raise self._wrong(f"an axis of length {length} does not split into {first} and {second}")
        return first, second

    def _wrong(self, why: str) -> GraphError:
        return GraphError(f"shape {self._shape} does not fit {self._x}: {why}")
