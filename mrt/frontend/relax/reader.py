"""Reading a Relax function into a float Graph: parameters, then binding by binding through the converters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.relax.converters.quantization import quantized_form, stored_form
from mrt.frontend.relax.cut import Key, Reads, bindings_of, is_control, reads_of
from mrt.frontend.relax.module import ReadFunction, prepare_module
from mrt.frontend.relax.node import Converter, Node, Scope, find_converter, static_sizes
from mrt.frontend.relax.tir.blocks import UnreadError
from mrt.frontend.relax.tir.computing import computed
from mrt.frontend.shared.channels_first import channels_first
from mrt.frontend.shared.inputs import Shapes, Values, read_options
from mrt.frontend.shared.node import Value
from mrt.frontend.shared.refusals import list_uncovered
from mrt.frontend.shared.split import read_with_split
from mrt.frontend.tvm.bias import merge_biases
from mrt.frontend.tvm.folding import fold, is_foldable
from mrt.frontend.tvm.node import graph_dtype, is_known, item_of
from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType, variable
from mrt.symbol.types import DTYPES

_MOVING = frozenset({"expand_dims", "permute_dims", "reshape", "squeeze"})
"""Operators that move the elements of their first input and change none."""


_MEMORY = frozenset({"relax.memory.alloc_storage", "relax.memory.alloc_tensor", "relax.builtin.alloc_tensor"})

_LOWERED = (
    "every operator is a call_tir, as relax.transform.LegalizeOps makes them: give the module without that pass, and "
    "without pipelines that run it, such as relax.get_pipeline"
)


def from_relax(
    mod: Any,
    params: Mapping[str, Any] | Sequence[Any] | None = None,
    batch: int = 1,
    shapes: Shapes | None = None,
    values: Values | None = None,
    split: Iterable[str] = (),
) -> Graph:
    """The float graph of a TVM module of high-level Relax operators: of its function "main", or of its only one.

    params: values (NumPy or TVM tensors) of the function's parameters, by name, or a list for its last parameters, or
    what tvm.relax.frontend.detach_params gives. Where there are none, those that an importer left in the function's
    attribute "params" are taken. Parameters with a value become parameters of the graph, the others inputs; the
    attribute "num_input" says how many inputs there must be.

    batch, shapes, values, split: as `load_model` takes them; a symbolic size is the same wherever it stands. Every
    float becomes float32. Symbols are called as the
    Relax variables are, with a number where two have one name. Values that do not depend on the data are computed,
    the constant added to a convolution or matrix product becomes its bias, and a channels-last network is turned into
    a channels-first one, whose inputs and outputs stay as they were.

    Raises GraphError where `mod` is no such module, another dimension is dynamic, or the module is malformed;
    DataError where `params` do not fit; UnsupportedOperatorError listing every operator that is not covered, and every
    use of a covered one that is not. A call_tir is read where its PrimFunc computes element by element or moves
    elements.
    """
    options = read_options(batch, shapes, values, split)
    function = prepare_module(mod, params, options)
    names = _unique_names(function.body)
    reads = reads_of(function.body, names, partial(_kind, function))

    def read(outputs: Sequence[Any]) -> Graph:
        return merge_biases(channels_first(_Reader(function, names, reads, outputs).read()))

    return read_with_split(read, reads.operators, reads.outputs, options.split)


class _Reader:
    """Reads one function. A call that is not covered is noted, and a symbol stands in for it until the end."""

    def __init__(self, function: ReadFunction, names: Mapping[Any, str], reads: Reads, outputs: Sequence[Key]) -> None:
        """outputs: what is read, perhaps not all that the function gives."""
        self._function, self._reads, self._outputs = function, reads, outputs
        self._needed = reads.needed(outputs)
        self._scope = Scope(names)
        self._uncovered: dict[str, list[str]] = {}
        self._reasons: dict[str, str] = {}
        self._misused: list[str] = []
        self._stand_ins: set[Symbol] = set()

    def read(self) -> Graph:
        try:
            self._read_parameters()
            for binding in bindings_of(self._function.body):
                self._read_binding(binding)
            outputs = list(_flat(self._results()))
        except GraphError as error:
            if self._uncovered or self._misused:
                raise self._refusal() from error
            raise
        if self._uncovered or self._misused:
            raise self._refusal()
        if not outputs:
            raise GraphError(f"function {self._function.name} gives an empty tuple; at least one tensor is needed")
        symbols = [self._scope.symbol(value, f"output{index}") for index, value in enumerate(outputs)]
        return self._scope.builder.graph(symbols)

    def _results(self) -> Value:
        """The values of the outputs; constants among those of the function stay where they are."""
        if self._outputs is self._reads.outputs:
            return self._scope.read(self._function.body.body.body)
        results = []
        for name, *places in self._outputs:
            value = self._scope.read(self._reads.variables[str(name)])
            for place in places:
                value = item_of(value, int(place))
            results.append(value)
        return tuple(results)

    def _read_parameters(self) -> None:
        for index, parameter in enumerate(self._function.body.params):
            if index in self._function.values:
                self._scope.define(parameter, self._function.values[index])
            else:
                self._scope.input(parameter, tensor_type(parameter.ty, f"input {parameter.name}"))

    def _read_binding(self, binding: Any) -> None:
        scope, expression = self._scope, binding.value
        is_operator = isinstance(expression, tvm.ir.Call) or is_control(expression)
        if is_operator and scope.names[binding.var] not in self._needed:
            scope.define(binding.var, self._unread(binding.var.ty, scope.names[binding.var]))
            return
        if isinstance(expression, tvm.ir.Call):
            value = self._read_call(expression, scope.names[binding.var])
        elif is_operator:
            value = self._refuse(expression, scope.names[binding.var], binding.var.ty)
        else:
            value = scope.read(expression)
        _check_shape(value, binding.var.ty, scope.names[binding.var])
        scope.define(binding.var, value)

    def _read_call(self, call: Any, name: str) -> Value:
        operator = _callee(call)
        function = self._prim_func(call)
        convert = find_converter(operator) if function is None else partial(call_tir, function)
        if convert is None and not is_foldable(operator.removeprefix("relax.")):
            return self._refuse(call, name, call.ty)
        inputs = tuple(self._scope.read(argument) for argument in call.args[0 if function is None else 1 :])
        node = Node(name, self._scope, inputs, call)
        try:
            if is_known(inputs):
                return self._folded(node, convert)
            if convert is not None:
                return convert(node)
        except UnreadError as reason:
            return self._refuse(call, name, call.ty, f": {reason}")
        except UnsupportedOperatorError as error:
            # What a stand-in causes is no news.
            if self._stand_ins.isdisjoint(item for item in _flat(inputs) if isinstance(item, Symbol)):
                self._misused.append(str(error))
            return self._stand_in(call.ty, name)
        except (ArithmeticError, IndexError, MemoryError, TypeError, ValueError) as error:
            # Attributes that are of the right kind and yet fit no shape.
            raise GraphError(f"{node.label}: its attributes do not fit its inputs: {error}") from None
        return self._refuse(call, name, call.ty)

    def _prim_func(self, call: Any) -> Any | None:
        """The PrimFunc that a call_tir runs, None for any other call."""
        if not isinstance(call.op, tvm.ir.Op) or call.op.name != "relax.call_tir":
            return None
        function = self._function.module[call.args[0]]
        return function if isinstance(function, tirx.PrimFunc) else None

    def _folded(self, node: Node, convert: Converter | None) -> Value:
        """The value of a node of constants; one that is stored quantized stays so."""
        value = fold(node, convert)
        if not isinstance(value, np.ndarray):
            return value
        if node.kind == "dequantize":
            self._scope.keep_quantized(value, quantized_form(node))
        elif node.kind == "astype":
            self._scope.keep_quantized(value, stored_form(node, value))
        elif node.kind in _MOVING:
            first = node.array(0)
            constant = None if first is None else self._scope.quantized(first)
            if constant is not None:
                others = node.inputs[1:]
                moved = constant.moved(lambda array: np.asarray(fold(replace(node, inputs=(array, *others)), convert)))
                self._scope.keep_quantized(value, moved)
        return value

    def _refuse(self, expression: Any, name: str, type: Any, reason: str = "") -> Value:
        self._uncovered.setdefault(_kind(self._function, expression), []).append(name)
        self._reasons[name] = f"{name}{reason}"
        return self._stand_in(type, name)

    def _stand_in(self, type: Any, name: str) -> Value:
        if isinstance(type, tvm.ir.TupleType):
            return tuple(self._stand_in(field, name) for field in type.fields)
        symbol = variable(name, tensor_type(type, name))
        self._stand_ins.add(symbol)
        return symbol

    def _unread(self, type: Any, name: str) -> Value:
        """What stands for a value that nothing needs which is read, perhaps as an item of a tuple."""
        try:
            return self._stand_in(type, name)
        except GraphError:
            return ()

    def _refusal(self) -> UnsupportedOperatorError:
        """The error that lists everything that was refused."""
        parts = list(self._misused)
        if self._uncovered:
            advice = "give the module as high-level Relax operators, before it is lowered, or cut it before them"
            if self._is_lowered():
                advice = _LOWERED
            title = f"function {self._function.name}"
            operators, outputs = self._reads.operators, self._reads.outputs
            parts.insert(0, list_uncovered(title, self._uncovered, advice, operators, outputs, self._reasons))
        return UnsupportedOperatorError("; ".join(parts))

    def _is_lowered(self) -> bool:
        """Whether every operator is a PrimFunc, of which some are not read."""
        calls = [binding.value for binding in bindings_of(self._function.body)]
        operators = {_callee(call) for call in calls if isinstance(call, tvm.ir.Call)}
        return "relax.call_tir" in operators and operators <= {"relax.call_tir"} | _MEMORY


def call_tir(function: Any, node: Node) -> Value:
    """The converter of a call_tir: its inputs are a tensor or a tuple of them, then a shape of numbers."""
    first = node.input(0)
    given = first if isinstance(first, tuple) else (first,)
    sizes = node.known_integers(1, "the sizes") if len(node.inputs) > 1 else ()
    return computed(node, function, given, sizes)


def tensor_type(type: Any, title: str) -> TensorType:
    """A Relax tensor's type in the graph; GraphError where it is no tensor or its shape or dtype is not known."""
    if not isinstance(type, relax.TensorType):
        raise GraphError(f"{title} is {type}; a tensor is needed")
    sizes = static_sizes(type.shape)
    if sizes is None or type.dtype is None or graph_dtype(str(type.dtype)) not in DTYPES:
        raise GraphError(
            f"{title} is {type}; a float or signed integer tensor of static sizes is needed (a batch may be dynamic)"
        )
    return TensorType(sizes, graph_dtype(str(type.dtype)))


def _check_shape(value: Value, type: Any, name: str) -> None:
    """GraphError where what was read has not the shape that TVM infers or the module states."""
    if isinstance(value, tuple) or not isinstance(type, relax.TensorType):
        return
    sizes = static_sizes(type.shape)
    if sizes is not None and tuple(value.shape) != sizes:
        raise GraphError(f"{name} has shape {tuple(value.shape)}; the module says {sizes}")


def _callee(call: Any) -> str:
    """What a call calls, as errors name it."""
    if isinstance(call.op, tvm.ir.Op):
        return str(call.op.name)
    if isinstance(call.op, tvm.ir.GlobalVar):
        return f"function {call.op.name_hint}"
    if isinstance(call.op, relax.ExternFunc):
        return f"packed function {call.op.global_symbol}"
    return "a function value"


def _kind(function: ReadFunction, expression: Any) -> str:
    """What errors call an operator; of call_tir and its like with what it runs."""
    if not isinstance(expression, tvm.ir.Call):
        return type(expression).__name__
    first = expression.args[0] if len(expression.args) else None
    if isinstance(first, tvm.ir.GlobalVar):
        return f"{_callee(expression)} of {_numberless(function.module, str(first.name_hint))}"
    if isinstance(first, relax.ExternFunc):
        return f"{_callee(expression)} of {first.global_symbol}"
    return _callee(expression)


def _numberless(module: Any, name: str) -> str:
    """The name without the number by which TVM tells functions of one name apart."""
    base = name.rstrip("0123456789")
    return base if base != name and any(base == other.name_hint for other in module.get_global_vars()) else name


def _flat(value: Value) -> Iterator[Any]:
    if isinstance(value, tuple):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _unique_names(function: Any) -> dict[Any, str]:
    """A name for each variable: its own, with a number where an earlier one has it.

    A variable that another one of its block is bound to is called as that one: importers give names to results so.
    """
    variables = (*function.params, *(binding.var for binding in bindings_of(function)))
    aliases = {
        binding.var: binding.value
        for binding in bindings_of(function)
        if isinstance(binding.var, relax.DataflowVar) and isinstance(binding.value, relax.DataflowVar)
    }
    titles: dict[Any, str] = {}
    for alias, own in aliases.items():
        titles.setdefault(own, str(alias.name))
    unique = GraphBuilder()
    names: dict[Any, str] = {}
    for var in variables:
        if var in aliases:
            names[var] = names[aliases[var]]
        else:
            names[var] = unique.unique(titles.get(var) or str(var.name) or "value")
    return names
