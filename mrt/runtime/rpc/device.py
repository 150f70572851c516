"""A machine that runs a server of TVM's RPC, and needs nothing else: libraries are uploaded, run and timed there."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import tvm
from tvm.runtime.vm import VirtualMachine

from mrt.device_address import Address
from mrt.errors import CompilationError, DeviceError
from mrt.runtime.code import Library, check_tiles
from mrt.runtime.device import LEAST_CALLS, TIMED, Batches, Cpu, KernelClock, Loaded, Runs, Step
from mrt.runtime.elf import machine_of
from mrt.runtime.linker import Linker
from mrt.runtime.metadata import MAIN, METADATA, REAL
from mrt.runtime.rpc.session import Session
from mrt.symbol.quantized_tensor import Array, TensorQuantization

CPU, TRIPLE = "target.llvm_get_system_cpu", "target.llvm_get_system_triple"
"""What a TVM that has LLVM says of its machine; one that has the runtime alone says nothing."""


class RpcDevice:
    """The machine at an address. What it loads and times is a session of its own; a server has one at a time."""

    is_here = False

    def __init__(self, address: Address) -> None:
        self._address = address
        self._open: list[Session] = []

    @property
    def name(self) -> str:
        return str(self._address)

    @cached_property
    def cpu(self) -> Cpu:
        with self._session() as session:
            return Cpu(_said(session, CPU), _said(session, TRIPLE))

    def load(self, library: Library) -> Loaded:
        session = self._opened()
        try:
            return _LoadedThere(session, library.content)
        except BaseException:
            session.close()
            raise

    def filled(self, library: bytes, arrays: Sequence[Array]) -> list[Array]:
        with self._session() as session:
            code = uploaded(session, library, "probe.so")

            def run() -> list[Array]:
                held = [tvm.runtime.tensor(array, session.remote.cpu()) for array in arrays]
                code["main"](*held)
                return [tensor.numpy() for tensor in held]

            return session.call("asking for its CPU", run)

    @contextmanager
    def clock(self, linker: Linker) -> Iterator[KernelClock]:
        with self._session() as session:
            yield _Clock(session, linker)

    def close(self) -> None:
        while self._open:
            self._open.pop().close()

    def __enter__(self) -> RpcDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened(self) -> Session:
        self._open.append(Session(self._address))
        return self._open[-1]

    @contextmanager
    def _session(self) -> Iterator[Session]:
        session = self._opened()
        try:
            yield session
        finally:
            session.close()
            self._open = [each for each in self._open if each is not session]


def uploaded(session: Session, content: bytes, name: str) -> Any:
    """TVM's module of a library, loaded on the device; DeviceError where its loader refuses it."""

    def load() -> Any:
        session.remote.upload(bytearray(content), name)
        return session.remote.load_module(name)

    return session.call(f"loading code for {machine_of(content) or 'no known machine'}", load)


class _LoadedThere:
    """A compiled module on a device; its session ends with `close`."""

    def __init__(self, session: Session, content: bytes) -> None:
        code = uploaded(session, content, "model.so")
        self._session = session
        self._machine = session.call("starting the module", lambda: VirtualMachine(code, session.remote.cpu()))
        session.call("asking for tile registers", lambda: check_tiles(self._machine))

    def metadata(self) -> bytes:
        return self._session.call("reading the module", lambda: bytes(self._machine[METADATA]().numpy()))

    def workers(self, inputs: Sequence[TensorQuantization], most: int) -> Sequence[Runs]:
        return [_Caller(self._session, self._machine, inputs)]

    def seconds(self, call: Callable[[], object], batches: Batches) -> float:
        """Of the calls one after the other, each by itself, without what goes over the network."""
        call()  # the device has the inputs of the last call, of whatever values
        options = {"number": 1, "repeat": LEAST_CALLS, "min_repeat_ms": int(1000 * TIMED / LEAST_CALLS)}

        def timed() -> list[float]:
            clock = self._machine.module.time_evaluator("invoke_stateful", self._session.remote.cpu(), **options)
            return [float(each) for each in clock(MAIN).results]

        return len(batches) * median(self._session.call("timing the module", timed))

    def close(self) -> None:
        self._machine = None
        self._session.close()


class _Caller:
    """Sends batches, and takes what comes back."""

    def __init__(self, session: Session, machine: Any, inputs: Sequence[TensorQuantization]) -> None:
        self._session, self._machine, self._inputs = session, machine, inputs

    def run(self, batches: Batches, integer: bool) -> list[list[Array]]:
        return [self.outputs(batch, integer) for batch in batches]

    def outputs(self, batch: Sequence[Array], integer: bool) -> list[Array]:
        fed = [_filled_up(x, entry, integer) for x, entry in zip(batch, self._inputs, strict=True)]
        name = MAIN if integer else REAL

        def run() -> list[Array]:
            device = self._session.remote.cpu()
            self._machine.set_input(name, *(tvm.runtime.tensor(array, device) for array in fed))
            self._machine.invoke_stateful(name)
            found = self._machine.get_outputs(name)
            return [output.numpy() for output in (found if isinstance(found, tuple | list) else [found])]

        return self._session.call("running the module", run)

    def steps(self, integer: bool, kept: Collection[int], in_place: Collection[int] = ()) -> Step:
        return lambda batch: self.outputs(batch, integer)


def _filled_up(x: Array, entry: TensorQuantization, integer: bool) -> Array:
    """The samples as the function takes them, followed by ones that the network is proven for where some lack."""
    is_integer = integer or entry.is_given
    held = np.full(entry.shape, min(max(0, entry.lo), entry.hi) if is_integer else 0)
    held = held.astype(entry.dtype if is_integer else np.float32)
    held[: len(x)] = x
    return held


class _Clock:
    """Times kernels on a device, one library after the other."""

    def __init__(self, session: Session, linker: Linker) -> None:
        self._session, self._linker, self._count = session, linker, 0

    def __call__(self, built: Any, arrays: Sequence[Array], repeats: int, milliseconds: int) -> list[float]:
        self._count += 1
        name = f"kernel{self._count}.so"
        code = uploaded(self._session, _linked(built, self._linker), name)
        options = {"number": 1, "repeat": repeats, "min_repeat_ms": milliseconds}

        def timed() -> list[float]:
            device = self._session.remote.cpu()
            clock = code.time_evaluator("main", device, **options)
            found = clock(*(tvm.runtime.tensor(array, device) for array in arrays))
            self._session.remote.remove(name)
            return [float(each) for each in found.results]

        return self._session.call("timing a kernel", timed)


def _linked(built: Any, linker: Linker) -> bytes:
    """The content of a library of a kernel; CompilationError where the linker fails."""
    command = linker.command()
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernel.so"
            built.export_library(str(path), cc=command)
            return path.read_bytes()
    except (RuntimeError, OSError) as error:
        raise CompilationError(f"a kernel cannot be linked by {command}: {error}") from error


def _said(session: Session, name: str) -> str:
    try:
        function = session.remote.get_function(name)
    except (AttributeError, ValueError):
        return ""
    return session.call("asking for its CPU", lambda: str(function()))


def device_at(address: str) -> RpcDevice:
    """The device at `address`, rpc://host:port/key, not connected yet; ConfigError for what is no address."""
    return RpcDevice(Address.of(address))


def open_device(address: str) -> RpcDevice:
    """The device at `address`, rpc://host:port/key, which answers; a context manager that ends all its sessions.

    Raises ConfigError for what is no address, DeviceError where the device cannot be talked to.
    """
    device = device_at(address)
    try:
        _ = device.cpu
    except DeviceError:
        device.close()
        raise
    return device
