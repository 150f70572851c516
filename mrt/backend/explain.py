"""What a graph is compiled to, for people: every call, how its results lie in memory, and why it ends where it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mrt.backend.fusion.regions import MAX_SYMBOLS
from mrt.backend.kernels.generic.dot import DotForm
from mrt.backend.kernels.generic.sliced_dot import SlicedForm
from mrt.backend.kernels.generic.winograd_choice import WinogradForm
from mrt.backend.layout.layouts import Layouts
from mrt.backend.lowering.plan_calls import Call, plan_calls
from mrt.backend.lowering.region import Copy
from mrt.backend.machine import Machine
from mrt.backend.memory.storage import Storage
from mrt.backend.rewrites.known_bounds import NOTHING, Bounds, bounds_of_inputs, known_bounds
from mrt.backend.te.registry import Kind, kind_of
from mrt.compilation import NATIVE, Target
from mrt.symbol import Graph, Symbol
from mrt.symbol.passes import Refusal
from mrt.symbol.quantized_tensor import TensorQuantization


@dataclass(frozen=True)
class CompiledCall:
    """One call of a function.

    outputs: the symbols that it gives. operators: what it computes, in order. products: how its sums of products are
    formed, an empty string if there are none; instruction: by which the machine does. memory: how its results lie.
    ends: why what follows is not part of it. refusals: what its kernel does without, and why; of sums of products.
    """

    outputs: tuple[str, ...]
    operators: tuple[str, ...]
    products: str
    memory: tuple[str, ...]
    ends: str
    refusals: tuple[Refusal, ...] = ()
    instruction: str = ""


@dataclass(frozen=True)
class Explanation:
    """What a graph is compiled to.

    calls: in order. refusals: why rewrites left symbols alone that they might have changed; later ones may have changed
    these.
    """

    calls: tuple[CompiledCall, ...]
    refusals: tuple[Refusal, ...]


def explain(graph: Graph, inputs: Sequence[TensorQuantization], target: Target = NATIVE) -> Explanation:
    """What `graph`, whose inputs are `inputs`, is compiled to for `target`; CompilationError if it cannot be."""
    known = bounds_of_inputs(inputs)
    machine = Machine.of(target)
    plan = plan_calls(graph, machine, lambda key, name, make: name, {}, known)
    bounds = known_bounds(plan.graph, known)
    calls = tuple(described_call(call, plan.graph, machine, bounds) for call in plan.calls)
    return Explanation(calls, tuple(plan.refusals))


def described_call(call: Call, graph: Graph, machine: Machine, bounds: Bounds = NOTHING) -> CompiledCall:
    """What is told of a call of a graph as it is compiled for a machine. bounds: what is known of tensors, by name."""
    memory = _memories(call)
    if call.lowered is None:
        names = tuple(result.symbol.name if isinstance(result, Copy) else result.name for result in call.results)
        return CompiledCall(names, ("copy",), "", memory, "another layout of the same values is needed")
    region, packed = call.lowered.region, call.lowered.packed
    formed = [(each.form, reader) for (reader, _), each in packed.items() if isinstance(each.form, DotForm)]
    forms = [form for form, _ in formed]
    return CompiledCall(
        tuple(output.name for output in region.outputs),
        tuple(symbol.op for symbol in region.symbols),
        _products(forms[0]) + _why_words(*formed[0], bounds) if forms else "",
        memory,
        "; ".join(dict.fromkeys(_why_ended(graph, output, call.lowered.layouts) for output in region.outputs)),
        call.lowered.refusals(machine) if forms else (),
        forms[0].dot.instruction if forms else "",
    )


def _products(form: DotForm) -> str:
    dot = form.dot
    if not dot.instruction:
        packed = "" if form.packed is None else f", weights packed in {form.packed.packing.bits} bits"
        return f"{dot.data} x {dot.weight}, multiplied in {dot.accumulator}{packed}{_in_tiles(form)}"
    said = f"{dot.data} x {dot.weight}, {dot.depth} at once in {dot.lanes} lanes ({dot.instruction})"
    if dot.parts > 1:
        said += f", {dot.parts} bytes of each weight by themselves"
    if form.crossed:
        said += ", by half as many products of sums"
    if form.packed is not None:
        said += f", weights packed in {form.packed.packing.bits} bits"
        said += ", both bytes of the data by themselves" if form.packed.splits else ""
    said += _in_tiles(form)
    if isinstance(form, SlicedForm):
        said += f", the sums of {form.width} channels each times a factor"
    return said


def _in_tiles(form: DotForm) -> str:
    """How many products form the results of a tile by Winograd's algorithm; nothing where they are summed directly."""
    if not isinstance(form, WinogradForm):
        return ""
    points, results = form.algorithm.points * form.tiling.parts, form.algorithm.tile**2
    return f", {points} for {results} results of 3 x 3 taps (Winograd)"


def _why_words(form: DotForm, reader: Symbol, bounds: Bounds) -> str:
    """Why data are multiplied as words of 16 bits; nothing where they are not."""
    data = reader.inputs[0]
    if isinstance(form, WinogradForm) or form.dot.data != "int16" or data.name not in bounds:
        return ""
    ends = f"[{bounds[data.name].min}, {bounds[data.name].max}]"
    if data.dtype in ("uint8", "int8"):
        return f", since this machine has no exact dot of bytes in {ends} and these weights"
    return f", since the data are {data.dtype} in {ends}"


def _memories(call: Call) -> tuple[str, ...]:
    """How the results lie, and over what the last one is written."""
    *others, last = map(_memory, call.storages)
    if call.written is not None and call.written is not call.results[-1]:
        last += f", written over {call.written.name}"
    return (*others, last)


def _memory(storage: Storage) -> str:
    """Such as `uint8[56, 58, 58, 64] (channels last, border 1)`."""
    said = [] if storage.inner is None else [f"axis {storage.inner} last"]
    if storage.pitch != storage.length:
        first = storage.before[storage.order[-1]]
        said.append(f"{first} to {first + storage.length - 1} of it")
    if storage.has_border:
        said.append(f"border {storage.border:g}")
    if storage.offset:
        said.append(f"value {storage.offset:+d}")
    return f"{storage.dtype}{list(storage.shape)}" + (f" ({', '.join(said)})" if said else "")


def _why_ended(graph: Graph, symbol: Symbol, layouts: Layouts) -> str:
    """Why no reader of `symbol` is computed together with it; of what only moves elements, why it is computed."""
    if symbol in layouts.copied:
        return f"{symbol.op} copies, since {layouts.copied[symbol]}"
    if symbol in layouts.concats:
        return f"it is a part of {layouts.concats[symbol].name}, written in its place"
    readers: Sequence[Symbol] = graph.consumers.get(symbol, ())
    if symbol in graph.outputs:
        return "an output of the graph"
    if len(readers) > 1:
        return f"read by {len(readers)} operators"
    for reader in readers:
        if kind_of(reader) is not Kind.ELEMENTWISE:
            return f"{reader.op} follows"
        if reader.shape != symbol.shape:
            return f"{reader.op} broadcasts it"
        if len(set(symbol.inputs)) < len(symbol.inputs):
            return f"{symbol.op} reads one tensor twice"
        if any(source is not symbol and graph.value(source) is None for source in reader.inputs):
            return f"{reader.op} is computed with its other operand"
    return f"{MAX_SYMBOLS} operators are the most of one function"


def compiled_text(explanation: Explanation) -> str:
    """The calls as a text, each with what is known of it indented below its outputs, and then the refusals."""
    lines = []
    for call in explanation.calls:
        lines.append(", ".join(call.outputs))
        lines.append(f"    {' + '.join(call.operators)}")
        lines += [f"    products: {call.products}"] if call.products else []
        lines.append(f"    memory: {'; '.join(call.memory)}")
        lines += [f"    without {refusal}" for refusal in call.refusals]
        lines.append(f"    ends: {call.ends}")
    lines.append(f"{len(explanation.calls)} calls")
    if explanation.refusals:
        lines += ["", "Left alone by rewrites:", *(f"    {refusal}" for refusal in explanation.refusals)]
    return "\n".join(lines)
