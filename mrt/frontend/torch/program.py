"""An exported program made ready: of fixed sizes, without side effects, in operators that have a converter."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # registers the library quantized_decomposed
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, OutputSpec, TensorArgument
from torch.utils import _pytree as pytree

from mrt.errors import GraphError, ModelFileError, MRTError, UnsupportedOperatorError
from mrt.frontend.shared.inputs import FixedInput, ReadOptions, StatedInput, fixed_inputs
from mrt.frontend.shared.refusals import list_uncovered
from mrt.frontend.shared.split import FileOperator
from mrt.frontend.torch.advice import advice_on
from mrt.frontend.torch.folding import fold_indices
from mrt.frontend.torch.node import called, covered_operators, find_converter, origin_of
from mrt.frontend.torch.states import CHANGES, Changed, take_states_out
from mrt.frontend.torch.torchao import know_torchao

_STORED = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_NAMES_SHOWN = 3
_TORCHAO = "torchao"
_LIBRARIES = ("aten", "quantized_decomposed", _TORCHAO)
"""Whose operators are read: PyTorch's own, and those that its quantization and torchao write."""


def load_program(archive: bytes, title: str) -> torch.export.ExportedProgram:
    """The program of an archive that read_archive wrote; ModelFileError where torch does not read it."""
    try:
        with quiet():
            if f"torch.ops.{_TORCHAO}.".encode() in archive:
                know_torchao()
            program: torch.export.ExportedProgram = torch.export.load(io.BytesIO(archive))
        # Constants are loaded as views, which cannot be detached in place when the program is traced again.
        program.constants.update({name: constant.clone() for name, constant in program.constants.items()})
    except Exception as error:  # torch checks by assertions, and its errors are of many kinds
        reason = str(error).strip().rpartition("\n")[2] or type(error).__name__
        raise ModelFileError(f"{title}: torch does not read the program: {reason}; export it again") from None
    return program


def prepare_program(
    program: torch.export.ExportedProgram, options: ReadOptions
) -> tuple[torch.export.ExportedProgram, list[Changed]]:
    """The program with its inputs fixed, its functions without effects on tensors that exist, operators taken apart
    as far as they are not covered; every input is a tensor and every output one that depends on something. And its
    states, which are inputs, and outputs behind all others.

    Raises GraphError and UnsupportedOperatorError as from_torch does.
    """
    _check_trained(program)
    try:
        with quiet():
            prepared = _with_inputs(program, options).run_decompositions(_decompositions())
    except MRTError:
        raise
    except Exception as error:  # whatever tracing a program raises
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise GraphError(f"torch cannot trace the program for inputs of these sizes: {reason}") from error
    _check_pure(prepared)
    states = take_states_out(prepared)
    _drop_non_tensors(prepared)
    fold_indices(prepared)
    return prepared, states


def _decompositions() -> Any:
    """How operators are taken apart that have no converter, as far as torch can; those that have one are kept."""
    table = torch.export.default_decompositions()
    for operator, _, overload in (name.partition(".") for name in covered_operators()):
        packet = getattr(torch.ops.aten, operator, None) if overload else None
        if packet is not None and overload in packet.overloads():
            table.pop(getattr(packet, overload), None)
    # Those of torchao stay, so that what it stores in integers does, and what it computes at run time is named.
    for operator in [each for each in table.keys() if each.namespace == _TORCHAO]:  # noqa: SIM118 (no dict)
        table.pop(operator)
    return table


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings that torch gives of itself."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _calls(program: torch.export.ExportedProgram) -> Iterator[Any]:
    """The nodes that call something, in the parts of the program too."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from (node for node in module.graph.nodes if node.op == "call_function")


def _check_trained(program: torch.export.ExportedProgram) -> None:
    """GraphError where an operator learns from its data or drops some of it, as in training."""
    training = []
    for node in _calls(program):
        schema = getattr(node.target, "_schema", None)
        for place, argument in enumerate(schema.arguments if schema is not None else ()):
            if argument.name in ("train", "training", "dropout_p"):
                given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
                if given:
                    training.append(f"{node.name} ({node.target.__name__})")
    if training:
        more = ", …" if len(training) > _NAMES_SHOWN else ""
        raise GraphError(
            f"the program is of a model in training: {', '.join(training[:_NAMES_SHOWN])}{more} would drop values or "
            "use statistics of the batch; call model.eval() before torch.export.export, and let normalisation track "
            "its statistics"
        )


def _with_inputs(program: torch.export.ExportedProgram, options: ReadOptions) -> torch.export.ExportedProgram:
    """The program for inputs of known sizes, those that have a value made constants of it."""
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    arguments = [spec.arg for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    tensors = {
        argument.name: placeholders[argument.name].meta["val"]
        for argument in arguments
        if isinstance(argument, TensorArgument)
    }
    stated = [
        StatedInput(name, tuple(map(_size, tensor.shape)), _value_dtype(tensor)) for name, tensor in tensors.items()
    ]
    fixed = {item.name: item for item in fixed_inputs(stated, options)}
    if all(isinstance(size, int) for tensor in tensors.values() for size in tensor.shape) and not options.values:
        return program
    values = [
        _fed(fixed[argument.name], tensors[argument.name].dtype)
        if isinstance(argument, TensorArgument)
        else argument.value
        for argument in arguments
    ]
    # Without guards: what a program was told of its sizes, such as that a batch is at least 2, its operators check.
    module = program.module(check_guards=False)
    names = [argument.name for argument in arguments]
    if options.values:
        given = {name: value for name, value in zip(names, values, strict=True) if name not in options.values}
        constants = {name: value for name, value in zip(names, values, strict=True) if name in options.values}
        wrapped = _WithConstants(module, names, constants, program.call_spec.in_spec)
        return torch.export.export(wrapped, (), given, strict=False)
    args, kwargs = pytree.tree_unflatten(values, program.call_spec.in_spec)
    return torch.export.export(module, args, kwargs, strict=False)


class _WithConstants(torch.nn.Module):  # type: ignore[misc]
    """A program some of whose inputs are buffers; it takes the others by their names, which they keep."""

    def __init__(self, module: Any, names: Sequence[str], constants: Mapping[str, Any], in_spec: Any) -> None:
        super().__init__()
        self._module, self._names, self._in_spec = module, names, in_spec
        for name, value in constants.items():
            self.register_buffer(name, value)

    def forward(self, **given: Any) -> Any:
        flat = [given[name] if name in given else self.get_buffer(name) for name in self._names]
        args, kwargs = pytree.tree_unflatten(flat, self._in_spec)
        return self._module(*args, **kwargs)


def _size(size: Any) -> int | str:
    return size if isinstance(size, int) else str(size)


def _value_dtype(tensor: Any) -> str:
    """NumPy's dtype for a value of an input; it has no bfloat16."""
    return "float32" if tensor.dtype is torch.bfloat16 else str(tensor.dtype).removeprefix("torch.")


def _fed(fixed: FixedInput, dtype: Any) -> Any:
    return torch.empty(fixed.shape, dtype=dtype) if fixed.value is None else torch.tensor(fixed.value, dtype=dtype)


def _check_pure(program: torch.export.ExportedProgram) -> None:
    """GraphError where the program changes what is no state, or has inputs that are neither tensors nor constants."""
    changed = [
        str(spec.target)
        for spec in program.graph_signature.output_specs
        if spec.kind not in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT, *CHANGES)
    ]
    if changed:
        more = ", …" if len(changed) > _NAMES_SHOWN else ""
        raise GraphError(
            f"the program changes {', '.join(changed[:_NAMES_SHOWN])}{more} while it runs; states are buffers and "
            "inputs: export a model in which forward() changes nothing else, after model.eval()"
        )
    # TVM's importer would give the values of what is no input to some other parameter.
    stored = {spec.target for spec in program.graph_signature.input_specs}
    unbound = sorted(set(program.constants) - stored)
    if unbound:
        raise GraphError(
            f"the constants {', '.join(unbound)} of the program are no inputs of its graph; export it again"
        )
    objects = [
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind not in (*_STORED, InputKind.USER_INPUT)
        or not isinstance(spec.arg, (TensorArgument, ConstantArgument))
    ]
    if objects:
        raise GraphError(f"the inputs {', '.join(objects)} of the program are objects; tensors are needed")


def check_real(program: torch.export.ExportedProgram) -> None:
    """GraphError where inputs, parameters or outputs are complex; what is in between may be."""
    outputs = next(iter(program.graph.find_nodes(op="output"))).args[0]
    outer = [*program.graph.find_nodes(op="placeholder"), *outputs]
    found = [origin_of(node).name for node in outer if getattr(node.meta.get("val"), "dtype", torch.float32).is_complex]
    if found:
        more = ", …" if len(found) > _NAMES_SHOWN else ""
        raise GraphError(
            f"{', '.join(found[:_NAMES_SHOWN])}{more} are complex; let the model take, hold and give real tensors, of "
            "which torch.view_as_complex and torch.view_as_real make complex ones and back"
        )


def _drop_non_tensors(program: torch.export.ExportedProgram) -> None:
    """Takes inputs that are constants, whose values the operators hold, and outputs that are no tensors away."""
    signature = program.graph_signature
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for spec in [spec for spec in signature.input_specs if isinstance(spec.arg, ConstantArgument)]:
        program.graph.erase_node(placeholders[spec.arg.name])
        signature.input_specs.remove(spec)
    output = next(iter(program.graph.find_nodes(op="output")))
    kept = [
        (item, spec)
        for item, spec in zip(output.args[0], signature.output_specs, strict=True)
        if isinstance(spec.arg, TensorArgument)
    ]
    if not kept:
        raise GraphError("the program gives no tensor; at least one output is needed")
    output.args = (tuple(item for item, _ in kept),)
    signature.output_specs[:] = [spec for _, spec in kept]


def described(program: torch.export.ExportedProgram) -> list[FileOperator]:
    """The operators of a prepared program, called as the exported nodes that they were made of."""
    return [
        FileOperator(
            origin_of(node).name,
            _kind(node),
            [source.name for source in node.all_input_nodes],
            [node.name],
        )
        for node in program.graph.nodes
        if node.op == "call_function"
    ]


def _kind(node: torch.fx.Node) -> str:
    """The operator as it was exported; one that takes elements by truth values (`x[x > 0]`) is told from others."""
    kind = called(origin_of(node).target)
    given = node.args[1] if len(node.args) > 1 and node.target is torch.ops.aten.index.Tensor else ()
    places = [each.meta.get("val") for each in given if isinstance(each, torch.fx.Node)] if given else []
    is_choice = any(getattr(value, "dtype", None) == torch.bool for value in places)
    return f"{kind} by truth values" if is_choice else kind


def outputs_of(program: torch.export.ExportedProgram) -> list[str]:
    """The names of the nodes that are outputs of a prepared program."""
    return [spec.arg.name for spec in program.graph_signature.output_specs]


def end_at(program: torch.export.ExportedProgram, outputs: Sequence[str]) -> None:
    """Makes the tensors of these nodes the outputs of a prepared program, and drops what none of them needs."""
    nodes = {node.name: node for node in program.graph.nodes}
    kept = [nodes[name] for name in outputs if isinstance(nodes[name].meta.get("val"), torch.Tensor)]
    output = next(iter(program.graph.find_nodes(op="output")))
    output.args = (tuple(kept),)
    program.graph_signature.output_specs[:] = [
        OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name=node.name), None) for node in kept
    ]
    # What checks a size that the data decide has no result, but is there for that alone.
    for node in reversed(program.graph.nodes):
        if node.op == "call_function" and not node.users:
            program.graph.erase_node(node)


def check_covered(
    program: torch.export.ExportedProgram, operators: Sequence[FileOperator], outputs: Sequence[str]
) -> None:
    """UnsupportedOperatorError listing every operator that has no converter, called as in the program as exported.

    operators, outputs: of the whole program.
    """
    uncovered: dict[str, list[str]] = {}
    for node in _calls(program):
        namespace = getattr(node.target, "namespace", "")
        known = find_converter(node.target.__name__) is not None and namespace in (*_LIBRARIES, "")
        if not known:
            origin = origin_of(node)
            names = uncovered.setdefault(called(origin.target), [])
            if origin.name not in names:
                names.append(origin.name)
    if uncovered:
        raise UnsupportedOperatorError(
            list_uncovered("the program", uncovered, advice_on(uncovered), operators, outputs)
        )
