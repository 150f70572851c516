"""What a function of a module does: which kernels it calls, and in which memory their results lie."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import relax

from mrt.backend.link.workspace import Lifetime, plan_memory
from mrt.backend.memory.alignment import Shelf, aligned, side_by_side
from mrt.symbol import Array


@dataclass(frozen=True)
class FunctionMemory:
    """What a function takes besides its inputs and the constants: bytes of its workspace, and of all outputs.

    results: of each output, the byte of that memory at which it begins, or the array that it always is.
    """

    workspace_bytes: int
    output_bytes: int
    results: tuple[int | Array, ...]


@dataclass(eq=False)
class Made:
    """A tensor that is made. place: of it among the outputs, None for one of the workspace. offset: in the memory of
    either."""

    type: Any
    first: int
    last: int
    place: int | None = None
    offset: int = 0

    @property
    def size(self) -> int:
        return bytes_of(self.type)


@dataclass(frozen=True, eq=False)
class Given:
    """The input at a place."""

    place: int
    type: Any


@dataclass(frozen=True, eq=False)
class Part:
    """What lies from byte `offset` on in a tensor that is made or given, such as some of its samples."""

    held: Made | Given
    offset: int


@dataclass(frozen=True)
class Packed:
    """The `size` bytes in the memory of all constants from `offset` on."""

    offset: int
    size: int


@dataclass(eq=False)
class Program:
    """What a function does. calls: a kernel's name and its arguments, results included. outputs: tensors made.

    copied: inputs, and the memory that holds them behind all calls; brought: the same, before these, which change it.
    results: what the function gives, as places among the outputs, or constants. is_tuple: whether as a tuple.
    by_bytes: whether all inputs come as one tensor, which is much faster to compile where they are many.
    """

    inputs: list[Given]
    calls: list[tuple[str, list[Any]]] = field(default_factory=list)
    made: list[Made] = field(default_factory=list)
    outputs: list[Made] = field(default_factory=list)
    copied: list[tuple[Given, Made]] = field(default_factory=list)
    brought: list[tuple[Given, Made]] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    is_tuple: bool = True
    by_bytes: bool = False
    workspace_bytes: int = 0
    output_bytes: int = 0

    @property
    def memory(self) -> FunctionMemory:
        results = [self.outputs[each].offset if isinstance(each, int) else each.value.numpy() for each in self.results]
        return FunctionMemory(self.workspace_bytes, self.output_bytes, tuple(results))

    @property
    def taken(self) -> list[tuple[str, Any]]:
        """The names and types of what the function takes for its inputs."""
        if not self.by_bytes:
            return [(f"input{place}", each.type) for place, each in enumerate(self.inputs)]
        return [("inputs", bytes_type(side_by_side(bytes_of(each.type) for each in self.inputs)[1]))]

    def make(self, type: Any) -> Made:
        self.made.append(Made(type, len(self.calls), len(self.calls)))
        return self.made[-1]

    def bring(self, found: Given) -> Made:
        """Memory that holds an input before the first call."""
        made = Made(found.type, 0, 0)
        self.made.append(made)
        self.brought.append((found, made))
        return made

    def call(self, kernel: str, arguments: list[Any]) -> None:
        for argument in arguments:
            held = argument.held if isinstance(argument, Part) else argument
            if isinstance(held, Made):
                held.last = len(self.calls)
        self.calls.append((kernel, arguments))

    def give(self, found: Any) -> None:
        """Adds a result, which gets memory of its own."""
        if isinstance(found, Given):
            found = self._copy_of(found)
        if isinstance(found, Made):
            if found.place is None:
                found.place = len(self.outputs)
                self.outputs.append(found)
            found = found.place
        self.results.append(found)

    def _copy_of(self, found: Given) -> Made:
        for source, copy in self.copied:
            if source is found:
                return copy
        copy = self.make(found.type)
        self.copied.append((found, copy))
        return copy

    def plan(self) -> None:
        """Chooses where tensors lie: those that are no outputs in the workspace, outputs one after the other."""
        inner = [memory for memory in self.made if memory.place is None]
        offsets, self.workspace_bytes = plan_memory([Lifetime(each.size, each.first, each.last) for each in inner])
        for memory, offset in zip(inner, offsets, strict=True):
            memory.offset = offset
        for memory in self.outputs:
            memory.offset = self.output_bytes
            self.output_bytes += aligned(memory.size)


def placed(tensor: Any, constants: Shelf) -> Packed:
    """A constant, put where all constants lie unless it is there."""
    return Packed(constants.place(tensor), math.prod(tensor.shape) * np.dtype(str(tensor.dtype)).itemsize)


def bytes_type(size: int) -> Any:
    return relax.TensorType([max(size, 1)], "uint8")


def bytes_of(type: Any) -> int:
    return math.prod(int(length) for length in type.shape) * item_bytes(type)


def item_bytes(type: Any) -> int:
    return np.dtype(str(type.dtype)).itemsize
