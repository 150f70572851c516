"""Where compiled code runs and is timed: this machine, or one that TVM's RPC reaches. Nobody else knows which it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

import tvm

from mrt.runtime.code import Library, virtual_machine
from mrt.runtime.linker import Linker
from mrt.runtime.metadata import METADATA
from mrt.runtime.worker import Worker
from mrt.symbol.quantized_tensor import Array, TensorQuantization
from mrt.workers import cores

TIMED, LEAST_CALLS = 0.1, 5
"""Seconds and calls for which a module is timed."""

Batches = Sequence[Sequence[Array]]
"""The arrays of all inputs of one call after the other."""
Step = Callable[[Sequence[Array]], list[Array]]
"""Gives the outputs of a whole batch."""
KernelClock = Callable[[Any, Sequence[Array], int, int], list[float]]
"""What times TVM's executable of one kernel, `main`, on arrays: repeats, and milliseconds of each at least."""


class Runs(Protocol):
    """What runs a module's calls, one at a time."""

    def run(self, batches: Batches, integer: bool) -> list[list[Array]]:
        """The outputs of one batch after the other, from integers or from real values."""

    def outputs(self, batch: Sequence[Array], integer: bool) -> list[Array]:
        """The outputs of one batch, or of less, which is filled up."""

    def steps(self, integer: bool, kept: Collection[int], in_place: Collection[int] = ()) -> Step:
        """What runs the calls of one stream. Outputs at the places `kept` are what the next call takes; it may write
        over those at the places `in_place`, and the call after it over all."""


class Loaded(Protocol):
    """A library that a device has loaded."""

    def metadata(self) -> bytes:
        """What the module says of itself."""

    def workers(self, inputs: Sequence[TensorQuantization], most: int) -> Sequence[Runs]:
        """What runs its calls side by side: `most`, or as many as the device can. inputs: those that both functions
        take as integers are given."""

    def seconds(self, call: Callable[[], object], batches: Batches) -> float:
        """How long it takes to compute `batches` of integers, which `call` does, by the device's own clock."""

    def close(self) -> None:
        """Frees what it takes on the device."""


@dataclass(frozen=True)
class Cpu:
    """What a device says of its CPU. name, triple: LLVM's; "" where the device has no LLVM."""

    name: str
    triple: str


class Device(Protocol):
    """A machine that runs compiled code. A device that is far raises DeviceError in all that it does.

    name: for people. is_here: whether it is this machine. cpu: that of one that is not.
    """

    @property
    def name(self) -> str: ...

    @property
    def is_here(self) -> bool: ...

    @property
    def cpu(self) -> Cpu: ...

    def load(self, library: Library) -> Loaded:
        """The code, loaded; CompilationError, or DeviceError, where that fails."""

    def filled(self, library: bytes, arrays: Sequence[Array]) -> list[Array]:
        """What the function `main` of a library makes of arrays that it writes into."""

    def clock(self, linker: Linker) -> Any:
        """A context that gives a `KernelClock`. linker: links code for the device."""

    def close(self) -> None:
        """Ends all sessions."""

    def __hash__(self) -> int: ...


class LocalDevice:
    """This machine, in this process."""

    name, is_here, cpu = "this machine", True, Cpu("", "")

    def load(self, library: Library) -> Loaded:
        return _LoadedHere(library.code)

    def filled(self, library: bytes, arrays: Sequence[Array]) -> list[Array]:
        held = [tvm.runtime.tensor(array) for array in arrays]
        Library(library).code["main"](*held)
        return [tensor.numpy() for tensor in held]

    @contextmanager
    def clock(self, linker: Linker) -> Iterator[KernelClock]:
        def seconds(built: Any, arrays: Sequence[Array], repeats: int, milliseconds: int) -> list[float]:
            options = {"number": 1, "repeat": repeats, "min_repeat_ms": milliseconds}
            timed = built.jit().time_evaluator("main", tvm.cpu(), **options)
            return [float(each) for each in timed(*map(tvm.runtime.tensor, arrays)).results]

        yield seconds

    def close(self) -> None:
        """Nothing is open."""


THIS_DEVICE = LocalDevice()


class _LoadedHere:
    """Code in this process."""

    def __init__(self, code: Any) -> None:
        self._code, self._machine = code, virtual_machine(code)

    def metadata(self) -> bytes:
        return bytes(self._machine[METADATA]().numpy())

    def workers(self, inputs: Sequence[TensorQuantization], most: int) -> Sequence[Runs]:
        return [Worker(self._code, self._machine, inputs) for _ in range(max(min(most, cores()), 1))]

    def seconds(self, call: Callable[[], object], batches: Batches) -> float:
        times: list[float] = []
        while len(times) < LEAST_CALLS or sum(times) < TIMED:
            started = time.perf_counter()
            call()
            times.append(time.perf_counter() - started)
        return median(times)

    def close(self) -> None:
        """It goes with whoever holds it."""
