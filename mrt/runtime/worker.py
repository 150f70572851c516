"""Calls of a compiled module's functions, one after the other, on memory that is used anew each time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from mrt.runtime.large_pages import ask_for_large_pages
from mrt.runtime.metadata import CALLS, MAIN, MEMORY, REAL
from mrt.symbol.quantized_tensor import Array, TensorQuantization


class Worker:
    """The functions of a module with memory of their own, which run one call at a time."""

    def __init__(self, code: Any, machine: Any, inputs: Sequence[TensorQuantization]) -> None:
        """code: the module's, whose functions `machine` runs. inputs: those that both functions take as integers are
        given."""
        integers = [_Feed(entry.shape, entry.dtype, min(max(0, entry.lo), entry.hi)) for entry in inputs]
        pairs = zip(integers, inputs, strict=True)
        real = [feed if entry.is_given else _Feed(entry.shape, "float32") for feed, entry in pairs]
        self._functions = _Function(code, machine, REAL, real), _Function(code, machine, MAIN, integers)

    def run(self, batches: Sequence[Sequence[Array]], integer: bool) -> list[list[Array]]:
        """The outputs of one batch after the other, from integers or from real values."""
        return [self.outputs(batch, integer) for batch in batches]

    def outputs(self, batch: Sequence[Array], integer: bool) -> list[Array]:
        """The outputs of one batch, or of less, which is filled up."""
        return [output.copy() for output in self._functions[integer](batch)]

    def steps(self, integer: bool, kept: Collection[int], in_place: Collection[int] = ()) -> Steps:
        """What runs the calls of one stream. kept: the places of the outputs that the next call takes; in_place: of
        those of them that it may write over."""
        return Steps(self._functions[integer], kept, in_place)


class Steps:
    """Calls one after the other, whose kept outputs are mostly not copied: they stay for the next call.

    Where one of them is changed in place all calls write to the same memory, so that the others are copied; else two
    take turns.
    """

    def __init__(self, function: _Function, kept: Collection[int], in_place: Collection[int]) -> None:
        self._functions = [function.twin()] if in_place else [function.twin(), function.twin()]
        self._stay = frozenset(in_place or kept)

    def __call__(self, batch: Sequence[Array]) -> list[Array]:
        """The outputs of one batch."""
        outputs = self._functions[0](batch)
        self._functions.reverse()
        return [output if place in self._stay else output.copy() for place, output in enumerate(outputs)]


class _Function:
    """A function of a compiled module, with the memory that every call of it uses anew."""

    def __init__(self, code: Any, machine: Any, name: str, feeds: Sequence[_Feed]) -> None:
        """The machine gives the memory; the function itself is called past it."""
        self._call = code.get_function(name + CALLS, True)
        self._give = machine[name + MEMORY]
        self._take(self._give())
        self._feeds = feeds

    def _take(self, given: Any) -> None:
        memory, results = given
        self._memory = tuple(memory)  # TVM's own arrays are slow to go through
        for each in self._memory:
            ask_for_large_pages(np.from_dlpack(each))
        self._outputs = [np.from_dlpack(result) for result in results]

    def twin(self) -> _Function:
        """The same function with outputs of its own; the two are called one after the other."""
        made = copy(self)
        made._take(self._give())
        made._memory = (*self._memory[:-1], made._memory[-1])
        return made

    def __call__(self, batch: Sequence[Array]) -> list[Array]:
        """The outputs, in arrays that the next call fills anew."""
        self._call(*[feed.take(array) for feed, array in zip(self._feeds, batch, strict=True)], *self._memory)
        return self._outputs


class _Feed:
    """Memory for an input, used where an array cannot be passed as it is."""

    def __init__(self, shape: tuple[int, ...], dtype: str, fill: int = 0) -> None:
        """fill: what stands where there are no samples, a number that the network is proven for."""
        self._fill = fill
        self._tensor = tvm.runtime.empty(shape, dtype)
        self._held = np.from_dlpack(self._tensor)

    def take(self, array: Array) -> Any:
        """The samples of `array`, filled up to the batch, as a tensor; the array's own memory where possible."""
        held = self._held
        # Memory that nobody may write to cannot be handed over, though the function only reads it.
        if array.flags.carray and array.dtype == held.dtype and len(array) == len(held):
            return tvm_ffi.from_dlpack(array)
        held[: len(array)] = array
        held[len(array) :] = self._fill
        return self._tensor
