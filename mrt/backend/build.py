"""Compiling: from graphs to an executable, and to the module that users run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax import vm_build

from mrt.backend.job import Job
from mrt.backend.kept_modules import KeptModule, ModuleCode
from mrt.backend.kernels.generic.prefetch_next_kernel import prefetching_steps
from mrt.backend.link.calls import Calls, write_calls
from mrt.backend.link.data_object import data_object
from mrt.backend.link.kernel_cache import KernelCache
from mrt.backend.link.kernel_compiler import SETTINGS, KernelCompiler, as_object
from mrt.backend.link.kernel_objects import KernelObjects, object_compiler, symbol_of
from mrt.backend.link.kernel_pipeline import KERNELS
from mrt.backend.link.one_function import Joined, join_calls
from mrt.backend.link.program import Program
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.machine import Machine, one_line
from mrt.backend.memory.alignment import Shelf
from mrt.backend.rewrites.known_bounds import bounds_of_inputs, known_bounds
from mrt.backend.rewrites.with_quantizers import with_quantizers
from mrt.backend.schedule.tilings import Scheduler, schedule_by_rule
from mrt.backend.tuning.tuner import Tuner
from mrt.blas import one_blas_thread
from mrt.collector import paused_collector
from mrt.compilation import NATIVE, Target, parse_target
from mrt.errors import CompilationError
from mrt.runtime import (
    MAIN,
    METADATA,
    REAL,
    THIS_DEVICE,
    THIS_MACHINE,
    Device,
    Executable,
    Linkable,
    Linker,
    Metadata,
    Module,
)
from mrt.symbol import Graph
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.workers import on_deep_stack


@dataclass(frozen=True, eq=False)
class LoweredModel:
    """A model on its way to machine code.

    builder: holds the functions MAIN and REAL, which compute `graphs`. compiler: compiles their kernels already, to
    object files of `objects`. metadata: what the module is to know of itself.
    """

    builder: ModuleBuilder
    graphs: Mapping[str, Graph]
    compiler: KernelCompiler
    objects: KernelObjects
    metadata: Metadata


@paused_collector()
def compile_model(
    graph: Graph,
    inputs: Sequence[TensorQuantization],
    outputs: Sequence[TensorQuantization],
    postprocess: Graph | None,
    digest: str,
    target: Target = NATIVE,
    tuner: Tuner | None = None,
    workers: int = 1,
    output_names: Sequence[str] = (),
    cache: KernelCache | None = None,
    device: Device = THIS_DEVICE,
) -> Module:
    """A module of an integer graph and of the float tail that takes its dequantized outputs in order.

    The arguments are those of `Job.of` and of `lower_model`, and the errors of both. device: where the module runs.
    """
    job = Job.of(graph, inputs, outputs, postprocess, digest, target, workers, output_names)
    # What a tuner chooses is not known before.
    kept = None if cache is None or tuner is not None else KeptModule.of(job, cache)
    found = None if kept is None else kept.get()
    if found is not None:
        linkable = Linkable(found.objects, job.linker, not job.machine.is_serial)
        return Module(linkable, job.in_stretches(found.stretches), device)
    lowered = lower_model(job, tuner, cache)
    builder, metadata = lowered.builder, lowered.metadata
    builder.add_bytes(metadata.to_json().encode(), METADATA)
    linkable = compile_linkable(
        builder.module(), job.machine, lowered.compiler, lowered.objects, job.linker, builder.shelf, builder.programs
    )
    if kept is not None:
        kept.put(ModuleCode(metadata.made_from.stretches, linkable.objects))
    return Module(linkable, metadata, device)


@one_blas_thread()  # of two, one would wait for a core at each product of matrices: LLVM has them all
def lower_model(job: Job, tuner: Tuner | None = None, cache: KernelCache | None = None) -> LoweredModel:
    """The functions of a job.

    tuner: chooses tilings by what is measured and known of them; without it they are those of the rules. cache: of
    kernels that were compiled before; the code is the same without.
    Raises CompilationError where TVM fails, or what is to be measured is not made for this machine; ModelFileError for
    a database of tilings that is missing or broken.
    """
    machine = job.machine
    if tuner is not None and tuner.trials and tuner.device.is_here and not parse_target(job.target).is_native:
        raise CompilationError(
            f"target {job.target!r}: tuning measures on this machine; mcpu: native is needed, or a device of that CPU"
        )
    facts = job.metadata.inputs, job.metadata.outputs
    bounds = known_bounds(job.graph, bounds_of_inputs(facts[0]))
    real = with_quantizers(job.graph, *facts, job.postprocess, integer_states=True)
    objects = KernelObjects(cache)

    def recall(name: str, key: Any, make: Callable[[], Any]) -> Any:
        # What a tuner chooses is no part of the key.
        return objects.function(name, key if tuner is None else object(), machine, make)

    def lower(scheduler: Scheduler, on_function: Callable[[str, Any], None] = lambda *_: None) -> ModuleBuilder:
        builder = ModuleBuilder(machine, scheduler, on_function, recall=recall)
        builder.add_batch(job.graph, MAIN, bounds, job.near)
        builder.add_batch(real, REAL, bounds, job.near)
        return builder

    compiler = object_compiler(machine, objects)
    builder = lower(schedule_by_rule if tuner is None else tuner.scheduler(lower, machine), compiler.add)
    metadata = job.in_stretches(builder.stretches(MAIN))
    return LoweredModel(builder, {MAIN: job.graph, REAL: real}, compiler, objects, metadata)


def compile_executable(
    module: tvm.IRModule,
    machine: Machine,
    compiler: KernelCompiler | None = None,
    by_bytes: Collection[str] = (),
    shelf: Shelf | None = None,
    objects: KernelObjects | None = None,
) -> Executable:
    """An executable of what a `ModuleBuilder` made, to be run; CompilationError with TVM's reason if there is none.

    compiler: what compiles kernels of the module already, and gives modules or, with `objects`, object files of these,
    which are linked and loaded. by_bytes, shelf: see `join_calls`.
    """
    compiler = compiler or KernelCompiler(machine)
    with compiling(machine):
        bytecode, joined = _joined(module, compiler, by_bytes, shelf)
        if objects is None:
            calls, kernels = written_calls(joined.calls, machine), compiler.finish()
            return Executable(bytecode, calls, kernels, joined.constants)
        linkable = Linkable(called_objects(joined, compiler, objects, machine), has_threads=not machine.is_serial)
    return Executable(bytecode, linkable.library().code, (), joined.constants)


def compile_linkable(
    module: tvm.IRModule,
    machine: Machine,
    compiler: KernelCompiler,
    objects: KernelObjects,
    linker: Linker = THIS_MACHINE,
    shelf: Shelf | None = None,
    programs: Mapping[str, Program] | None = None,
) -> Linkable:
    """What is linked to a library of what a `ModuleBuilder` made; raises as `compile_executable`.

    compiler: what compiles kernels of the module already to object files of `objects`. linker: what links them. shelf,
    programs: see `join_calls`.
    """
    with compiling(machine):
        bytecode, joined = _joined(module, compiler, shelf=shelf, programs=programs)
        # What holds the bytecode calls functions of the library that it is linked to: that of a module of machine code.
        library = tirx.build(tvm.IRModule({}), machine.target, KERNELS)
        bytecode.mod.import_module(library)
        held = library_objects(bytecode.mod, library)  # while kernels are compiled still
        return Linkable([*called_objects(joined, compiler, objects, machine), *held], linker, not machine.is_serial)


def library_objects(bytecode: Any, library: Any) -> tuple[bytes, bytes]:
    """The object files of a module of machine code, and of what a loader reads the bytecode that imports it from.

    The second one holds all constants.
    """
    code, symbol = as_object(library), tvm.get_global_func("runtime.ModuleImportsBlobName")()
    content = np.from_dlpack(tvm.get_global_func("runtime.ModulePackImportsToTensor")(bytecode))
    made = data_object(symbol, content.data, code)
    if made is None:
        pack = tvm.get_global_func("runtime.ModulePackImportsToLLVM")
        made = as_object(pack(bytecode, False, library["_get_target_string"](), ""))
    return code, made


@contextmanager
def compiling(machine: Machine) -> Iterator[None]:
    """TVM's settings; CompilationError for what TVM raises, or where its code cannot be kept."""
    try:
        with tvm.transform.PassContext(config=SETTINGS), machine.target:
            yield
    except OSError as error:
        raise CompilationError(
            f"machine code cannot be kept: {error.strerror or error}; see that this process has memory for it and "
            f"no narrow limit on the size of files (ulimit -f)"
        ) from error
    except Exception as error:  # TVM raises errors of many kinds, built-in ones among them
        raise CompilationError(f"TVM cannot compile the graph: {one_line(error)}") from error


def _joined(
    module: tvm.IRModule,
    compiler: KernelCompiler,
    by_bytes: Collection[str] = (),
    shelf: Shelf | None = None,
    programs: Mapping[str, Program] | None = None,
) -> tuple[Any, Joined]:
    """The virtual machine's bytecode, and what it was made of; `compiler` is given the kernels that it lacks."""
    joined, builder = joined_calls(module, compiler, by_bytes, shelf, programs), relax.ExecBuilder()
    vm_build._vmcodegen(builder, _pipeline()(joined.functions))
    return builder.get(), joined


def joined_calls(
    module: tvm.IRModule,
    compiler: KernelCompiler,
    by_bytes: Collection[str] = (),
    shelf: Shelf | None = None,
    programs: Mapping[str, Program] | None = None,
) -> Joined:
    """The calls of a module's functions; `compiler` is given the kernels that it lacks."""
    kernels = {v.name_hint: made for v, made in module.functions.items() if isinstance(made, tirx.PrimFunc)}
    for name in sorted(kernels):
        compiler.add(name, kernels[name])
    prefetching = {name for name, made in kernels.items() if prefetching_steps(made)}
    return join_calls(module, by_bytes, prefetching, shelf, programs)


def called_objects(
    joined: Joined, compiler: KernelCompiler, objects: KernelObjects, machine: Machine
) -> tuple[bytes, ...]:
    """The object files of all kernels, as `object_compiler` gives them, and at last of what calls them."""
    symbols = {name: symbol_of(name, function, machine.target) for name, function in compiler.functions.items()}
    calling = _calling(joined.calls, symbols, machine, objects.module)
    made = [kernel for group in compiler.finish() for kernel in group.values()]
    return (*{kernel.symbol: kernel.content for kernel in made}.values(), calling)


def written_calls(calls: Mapping[str, Calls], machine: Machine) -> Any:
    """The machine code of what calls kernels that are found by name; see `write_calls`."""
    return _calling(calls, None, machine, lambda module, target: tirx.build(module, target, KERNELS))


def _calling(
    calls: Mapping[str, Calls],
    symbols: Mapping[str, str] | None,
    machine: Machine,
    compiled: Callable[[tvm.IRModule, Any], Any],
) -> Any:
    """What `compiled` makes of the calls, for a target; see `write_calls`."""
    plain = tvm.target.Target({**machine.target.export(), "opt-level": 0})  # there is nothing to optimize

    def write() -> Any:
        with tvm.transform.PassContext(config=SETTINGS), machine.target:
            return compiled(write_calls(calls, symbols), plain)

    # TVM nests what unpacks one parameter in what unpacks those before it, and walks that recursively.
    many = max((len(each.parameters) for each in calls.values()), default=0) > MANY_PARAMETERS
    return on_deep_stack(write) if many else write()


MANY_PARAMETERS = 100


def _pipeline() -> Any:
    """What joined functions still need: the virtual machine's calls and allocations."""
    passes = relax.transform
    return tvm.transform.Sequential(
        [
            passes.ToNonDataflow(),
            passes.RemovePurityChecking(),
            passes.CallTIRRewrite(),
            passes.LowerAllocTensor(),
            passes.LowerRuntimeBuiltin(),
            passes.ComputePrimValue(),
            passes.VMShapeLower(),
            passes.AttachGlobalSymbol(),
        ]
    )
