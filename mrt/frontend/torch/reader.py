"""From a prepared program to a Graph: TVM's importer with our converters gives a Relax module, which is read as any."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

from mrt.errors import GraphError, MRTError, UnsupportedOperatorError
from mrt.frontend.relax import from_relax
from mrt.frontend.shared.inputs import ReadOptions
from mrt.frontend.shared.split import read_with_split
from mrt.frontend.torch import complex_numbers
from mrt.frontend.torch.folding import constant_indices
from mrt.frontend.torch.names import output_titles, with_names
from mrt.frontend.torch.node import (
    Converter,
    Node,
    covered_operators,
    dtype_of,
    find_converter,
    origin_of,
    relax_dtype,
)
from mrt.frontend.torch.program import check_covered, check_real, described, end_at, outputs_of, prepare_program
from mrt.frontend.torch.states import with_changes
from mrt.symbol import Graph


def read_program(program: torch.export.ExportedProgram, options: ReadOptions) -> Graph:
    """The float graph of an exported program; raises as from_torch does."""
    prepared, states = prepare_program(program, options)
    operators, whole = described(prepared), outputs_of(prepared)
    titles: dict[str, list[str]] = {}
    for node, title in zip(whole, output_titles(program), strict=False):
        titles.setdefault(node, []).append(title)

    def read(outputs: Sequence[str]) -> Graph:
        if outputs is not whole:
            end_at(prepared, outputs)
        check_covered(prepared, operators, whole)
        check_real(prepared)
        return with_changes(_converted(prepared, outputs, titles), states, outputs)

    return read_with_split(read, operators, whole, options.split)


def _converted(
    prepared: torch.export.ExportedProgram, outputs: Sequence[str], titles: Mapping[str, Sequence[str]]
) -> Graph:
    conversion = _Conversion(prepared)
    try:
        mod = from_exported_program(
            prepared,
            keep_params_as_input=True,
            run_ep_decomposition=False,
            custom_convert_map=dict.fromkeys(covered_operators(), conversion.convert),
        )
    except MRTError:
        raise
    except Exception as error:  # the importer checks by assertions, and TVM's errors are of many kinds
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise GraphError(f"TVM cannot import the program: {reason}") from error
    if conversion.misused:
        raise UnsupportedOperatorError("; ".join(conversion.misused.values()))
    return with_names(from_relax(mod), prepared, outputs, titles, conversion.called)


class _Conversion:
    """Converts the nodes of one program. A use that is not covered is noted, and zeros stand in for it."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self.misused: dict[str, str] = {}
        """What is said of the uses that are not covered, once for each node as exported."""
        self.called: dict[str, list[str]] = {}
        """The names of the variables that hold the value of each node."""
        self._known = _known_nodes(program)
        self._indices = constant_indices(program)
        self._names = _names(program)
        self._stand_ins: set[Any] = set()
        self._titled: set[Any] = set()
        """The variables that have the name of an input or of a node."""

    def convert(self, fx: Any, importer: Any) -> Any:
        """What TVM's importer keeps as the value of a node: an expression, or a tuple of them."""
        if not self._stand_ins.isdisjoint(fx.all_input_nodes):
            # What a stand-in causes is no news.
            return self._stand_in(fx, importer)
        node = Node(self._names[fx], fx, importer, self._known.__contains__, self._indices)
        for source in fx.all_input_nodes:
            importer.env[source] = _as_read(node, importer.env[source])
            self._titled.update(_variables(importer.env[source]))
        try:
            value = _value(node)
            _check_outputs(node, value)
        except UnsupportedOperatorError as error:
            self.misused.setdefault(origin_of(fx).name, str(error))
            return self._stand_in(fx, importer)
        return self._named(node, value)

    def _named(self, node: Node, value: Any) -> Any:
        """A tensor under the name of the node, as a variable that stands for it; one that has a name keeps it."""
        if value is None or isinstance(value, complex_numbers.Complex):
            return value
        if isinstance(value, tuple):
            return tuple(self._named(node, item) for item in value)
        variable = value if isinstance(value, relax.Var) else node.emit(value)
        if variable not in self._titled and isinstance(variable.ty, relax.TensorType):
            variable = node.emit(variable, "")
        self.called.setdefault(node.fx.name, []).append(str(variable.name))
        return variable

    def _stand_in(self, fx: Any, importer: Any) -> Any:
        self._stand_ins.add(fx)
        value = fx.meta.get("val")
        zeros = [
            importer.block_builder.emit(relax.op.zeros(tuple(item.shape), relax_dtype(item.dtype)))
            for item in (value if isinstance(value, (tuple, list)) else (value,))
            if isinstance(item, torch.Tensor)
        ]
        return tuple(zeros) if isinstance(value, (tuple, list)) else zeros[0] if zeros else None


def _variables(value: Any) -> list[Any]:
    return [item for item in (value if isinstance(value, tuple) else (value,)) if isinstance(item, relax.Var)]


def _value(node: Node) -> Any:
    if complex_numbers.is_complex(node):
        return complex_numbers.converted(node, _converter(node.fx))
    return _converter(node.fx)(node)


def _converter(fx: Any) -> Converter:
    convert = find_converter(fx.target.__name__)
    if convert is None:
        raise UnsupportedOperatorError(f"{fx.name} ({fx.target.__name__}): the operator is not covered")
    return convert


def _names(program: torch.export.ExportedProgram) -> dict[Any, str]:
    """What the results of nodes are called: as the exported node that one was made of, if no other one was."""
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    made = Counter(origin_of(node).name for node in nodes if node.target is not operator.getitem)
    return {node: origin_of(node).name if made[origin_of(node).name] == 1 else node.name for node in nodes}


def _known_nodes(program: torch.export.ExportedProgram) -> frozenset[Any]:
    """The nodes that do not depend on the inputs."""
    inputs = set(program.graph_signature.user_inputs)
    known: set[Any] = set()
    for node in program.graph.nodes:
        if node.op == "placeholder":
            if node.name not in inputs:
                known.add(node)
        elif known.issuperset(node.all_input_nodes):
            known.add(node)
    return frozenset(known)


def _as_read(node: Node, value: Any) -> Any:
    """A float tensor as float32."""
    if not isinstance(value, relax.Var) or not isinstance(value.ty, relax.TensorType):
        return value
    own = dtype_of(value)
    return node.cast(value, "float32") if own in ("float16", "float64", "bfloat16") else value


def _check_outputs(node: Node, value: Any) -> None:
    """UnsupportedOperatorError where an output is used that the converter does not give."""
    if not isinstance(value, tuple):
        return
    for user in node.fx.users:
        place = user.args[1] if len(user.args) > 1 else 0
        if place >= len(value):
            raise node.unsupported(f"output {place}", "used", f"a node of which only {len(value)} are used")
