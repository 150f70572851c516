"""A model that is to be compiled: what is checked of it, and what its module is to know of itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import tvm
from tvm.target import codegen

from mrt.backend.batches import second_cache
from mrt.backend.machine import Machine, resolved
from mrt.backend.rewrites.rows_of_states import states_in_place
from mrt.compilation import NATIVE, Target, TargetConfig, parse_target
from mrt.errors import CompilationError
from mrt.module_record import Provenance, Versions
from mrt.runtime import THIS_MACHINE, KeptState, Linker, Metadata
from mrt.symbol import Graph
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.symbol.states import compact, places_behind, states_of
from mrt.version import __version__


@dataclass(frozen=True, eq=False)
class Job:
    """A model that can be compiled.

    graph, postprocess: the integer graph, and the float tail of its dequantized outputs. metadata: what the module is
    to know, but for the stretches of its batch, which compiling chooses. target: as it was given. machine, linker: what
    it names.
    """

    graph: Graph
    postprocess: Graph | None
    metadata: Metadata
    target: Target
    machine: Machine
    linker: Linker

    @classmethod
    def of(
        cls,
        graph: Graph,
        inputs: Sequence[TensorQuantization],
        outputs: Sequence[TensorQuantization],
        postprocess: Graph | None,
        digest: str,
        target: Target = NATIVE,
        workers: int = 1,
        output_names: Sequence[str] = (),
    ) -> Job:
        """The job of an integer graph and of the float tail that takes its dequantized outputs in order.

        Both graphs have the batch, axis 0 of every input and output, that the module shall run at once. inputs,
        outputs: the facts of the integer graph's, in order. digest: SHA-256 of the model's certificate; the module
        carries it. workers: how many calls the module is to run side by side (see `plan_batch`), by code for one core.
        output_names: what the outputs of a call are called.
        Raises CompilationError where the graphs and facts do not fit together, the target is not known, or nothing
        links code for it.
        """
        machine, linker = Machine.of(target), _linker(parse_target(target))
        batch = _common_batch(graph, inputs, outputs, postprocess)
        made_from = Provenance(
            model=digest,
            target=resolved(target),
            versions=Versions(mrt=__version__, tvm=tvm.__version__, llvm=str(codegen.llvm_version_major())),
            batch=batch,
            workers=workers,
            needs=machine.needs,
        )
        constants, states = _constants_in_results(graph, postprocess), _states(graph, postprocess)
        metadata = Metadata(made_from, tuple(inputs), tuple(outputs), *constants, states, tuple(output_names))
        return cls(graph, postprocess, metadata, target, machine, linker)

    @property
    def near(self) -> int:
        """The bytes of a core's second cache, which stretches are made to fit."""
        return second_cache(self.target)

    def in_stretches(self, stretches: tuple[tuple[int, int], ...]) -> Metadata:
        """What a module knows whose batch runs in these; see `Provenance`."""
        made_from = self.metadata.made_from.model_copy(update={"stretches": stretches})
        return replace(self.metadata, made_from=made_from)


def _constants_in_results(graph: Graph, postprocess: Graph | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The places of the outputs that depend on no input, of the integer graph and of the whole model."""
    constants = _constant_outputs(graph, range(len(graph.inputs)))
    if postprocess is None:
        return constants, constants
    varying = [place for place in range(len(graph.outputs)) if place not in constants]
    return constants, _constant_outputs(postprocess, varying)


def _states(graph: Graph, postprocess: Graph | None) -> tuple[KeptState, ...]:
    """The states of the integer graph, with their places among its outputs and those of the whole model."""
    states, in_place = states_of(graph), states_in_place(graph)
    return tuple(
        KeptState(
            input=state.name,
            output=state.place,
            final_output=place,
            initial=compact(state.first),
            in_place=state.name in in_place,
        )
        for state, place in zip(states, places_behind(states, postprocess), strict=True)
    )


def _linker(config: TargetConfig) -> Linker:
    """What links code for a target; CompilationError where another than this machine's is asked for and missing.

    Such code may only be of use when it is linked, and making it takes long.
    """
    linker = Linker(config.mtriple, config.linker)
    if linker != THIS_MACHINE:
        linker.command()
    return linker


def _common_batch(
    graph: Graph,
    inputs: Sequence[TensorQuantization],
    outputs: Sequence[TensorQuantization],
    postprocess: Graph | None,
) -> int:
    """The length of axis 0, the same wherever an input has an effect; CompilationError where things do not fit."""
    sides = [("input", graph.inputs, inputs), ("output", graph.outputs, outputs)]
    for what, symbols, facts in sides:
        found = [(symbol.shape, symbol.dtype) for symbol in symbols]
        stated = [(entry.shape, entry.dtype) for entry in facts]
        if found != stated:
            raise CompilationError(f"the graph's {what}s are {found}, their quantization says {stated}")
    varying = graph.dependents(graph.inputs)
    shapes = {symbol.name: symbol.shape for symbol in (*graph.inputs, *graph.outputs) if symbol in varying}
    if postprocess is not None:
        if [s.shape for s in postprocess.inputs] != [s.shape for s in graph.outputs]:
            raise CompilationError("the inputs of the post-processing do not have the shapes of the graph's outputs")
        pairs = zip(graph.outputs, postprocess.inputs, strict=True)
        behind = postprocess.dependents([fed for output, fed in pairs if output in varying])
        shapes |= {symbol.name: symbol.shape for symbol in postprocess.outputs if symbol in behind}
    if len({shape[:1] for shape in shapes.values()}) != 1 or () in shapes.values():
        raise CompilationError(f"axis 0 is not the same batch in all inputs and outputs: {shapes}")
    return next(iter(shapes.values()))[0]


def _constant_outputs(graph: Graph, varying: Iterable[int]) -> tuple[int, ...]:
    """The places of the outputs that do not depend on the inputs at the places `varying`."""
    depends = graph.dependents(graph.inputs[place] for place in varying)
    return tuple(place for place, symbol in enumerate(graph.outputs) if symbol not in depends)
