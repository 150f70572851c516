"""The operator record: one frozen dataclass per operator holds all that is true of it, whoever asks."""

from __future__ import annotations

import ast
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

from typing_extensions import dataclass_transform

from mrt.errors import GraphError
from mrt.plugins import load_plugins
from mrt.symbol.interval import Array, Interval
from mrt.symbol.operation import Operation
from mrt.symbol.types import TensorType

EVERYTHING = (-math.inf, math.inf)


@dataclass(frozen=True)
class Operator:
    """Base of all operators. Fields are the attributes, with MXNet's names, types and defaults.

    A record defines:
      infer(*input types) -> TensorType        shape and dtype of the output; GraphError if the inputs do not fit
      evaluate(*input arrays) -> array         what the operator means, exact in integers, float64 inside for floats
      bounds(*input intervals) -> Interval     where the output lies, sound for independent inputs
    and may define:
      channel_axis() -> int                    axis of data and output that counts channels, where there is a weight
      intermediates(*input intervals)          intervals of what a kernel holds on the way, such as partial sums
      working_size(*input types) -> int        elements of the largest array that `evaluate` makes beside its output
      data_channel_axis(rank) -> int           axis of data of this rank that a weight's input channels lie along
      weight_groups() -> int                   groups of input channels, each with output channels of its own
      patches(x, positions) -> array           what some outputs are sums of, each times its weight
      summed_products(*input types) -> int     products of two computed tensors that an output element sums up
      kept_axis(axis, index, *types) -> int    axis of the output along which that of an input stays apart
      homogeneous_in(inputs) -> places         inputs whose common positive factor becomes the output's
      joined_axis(rank) -> int                 axis of an output of this rank along which the inputs are joined
      is_identity(*input types) -> bool        whether it changes nothing, its output being of the type of its data
      batch_obstacle(*input types) -> str      why axis 0 cannot be the batch ("" where samples stay apart)
      batch_obstacle_among(types, batched)     the same where it matters which inputs hold the batch
    """

    op: ClassVar[str] = ""
    input_names: ClassVar[tuple[str, ...]] = ("data",)
    is_elementwise: ClassVar[bool] = False
    """Whether an output element depends on the inputs at its own place only; inputs broadcast."""
    attains_bounds: ClassVar[bool] = False
    """Whether an input's least and greatest value, beside parameters, become the output's: `bounds` gives its range."""
    keeps_order: ClassVar[bool] = False
    """Whether the output holds the elements of the data in their order, whatever its shape."""
    compares_elements: ClassVar[bool] = False
    """Whether the output is elements of the data in the order of their values, or their places."""
    operation: ClassVar[Operation | None] = None
    """What it computes of two operands, two tensors or a tensor and a number; None for other operators."""
    expression_arity: ClassVar[int] = 0
    """How many operands it has in the expression of an elementwise region; 0: it stands in none."""
    family: ClassVar[str] = ""
    """What people call a layer of the network that begins with it, such as dense; "" where that is its own name."""
    is_trained_quantizer: ClassVar[bool] = False
    """Whether it belongs to the quantization that a float network brings with it."""
    weight_channel_axis: ClassVar[int | None] = None
    """Axis of the weight that counts output channels, where there is a weight."""

    infer: ClassVar[Callable[..., TensorType]]
    evaluate: ClassVar[Callable[..., Array]]
    bounds: ClassVar[Callable[..., Interval]]

    def __post_init__(self) -> None:
        """Brings the attributes to their declared types, so that equal operators are equal and print alike."""
        for name, kind in _attribute_kinds(type(self)).items():
            value = getattr(self, name)
            try:
                object.__setattr__(self, name, coerce(value, kind))
            except (TypeError, ValueError, OverflowError):
                raise GraphError(f"{self.op}.{name} is {value!r}; {_describe(kind)} is needed") from None

    @property
    def keeps_scale(self) -> bool:
        """Whether the output holds values of the (one) data input only, at the same scale and zero point."""
        return False

    @property
    def keeps_elements(self) -> bool:
        """Whether the output holds every element of the data once, in whatever order."""
        return self.keeps_order

    @property
    def moves_elements(self) -> bool:
        """Whether the output holds elements of the data, each at most once, at places that shapes alone decide."""
        return self.keeps_elements

    @property
    def selects(self) -> bool:
        """Whether every element of the output is one of the data inputs', or zero."""
        return self.keeps_scale

    @property
    def affine_axis(self) -> int | None:
        """Axis along which inputs 1 and 2 lie, by which it multiplies last and which it then adds; None for others."""
        return None

    @property
    def exact_in_integers(self) -> bool:
        """Whether integers compute it as it is, at scales that follow from those of its tensors."""
        return False

    @property
    def limits(self) -> tuple[float, float]:
        """The range to which it holds its data, whose elements within stay as they are; everything for others."""
        return EVERYTHING

    def channel_axis(self) -> int | None:
        """Axis of the data and of the output that counts channels, negative from the end; None without a weight."""
        return None

    # These signatures are the ones with which a record may name its inputs.
    def intermediates(self, *inputs: Any, **_: Any) -> tuple[Interval, ...]:
        return ()

    def working_size(self, *inputs: Any) -> int:
        return 0

    def data_channel_axis(self, rank: int) -> int | None:
        return None

    def weight_groups(self) -> int:
        return 1

    def patches(self, x: Array, positions: Array) -> Array | None:
        """What some outputs are sums of, each times its weight: (groups, R, K), of the dtype of the data `x`.

        positions: int64 (R,), of the output, numbered over all axes but that of its channels. K counts the weights of
        one output in their order. None where there is no weight, or outputs are sums of other numbers of products.
        """
        return None

    def joined_axis(self, rank: int) -> int | None:
        return None

    def summed_products(self, *inputs: TensorType) -> int:
        return 0

    def kept_axis(self, axis: int, index: int, *inputs: TensorType) -> int | None:
        """The axis of the output that keeps `axis` of input `index` apart; None where the operator mixes or cuts that.

        What the output holds at place c of its axis comes from place c of the input's alone; where it is longer, a
        multiple, each place of the input becomes as many neighbours.
        """
        if not self.is_elementwise:
            return None
        shape = self.infer(*inputs).shape
        behind = axis + len(shape) - inputs[index].rank
        return behind if shape[behind] == inputs[index].shape[axis] else None

    def homogeneous_in(self, inputs: int) -> tuple[int, ...]:
        """The places of those among so many inputs that are scaled together: f(c x, y) = c f(x, y) for every c > 0.

        An element of the output takes the factor of those that it depends on, where they have one. () where there is
        no such factor. Of a product's two factors the first is named; any other one alone would do.
        """
        return (0,) if self.keeps_scale and {abs(limit) for limit in self.limits} <= {0.0, math.inf} else ()

    def positions(self, index: int, *inputs: TensorType) -> tuple[int, int] | None:
        """The least and the greatest integer that may stand in an input of positions, such as the rows of a table; None
        for an input that is none."""
        return None

    def is_identity(self, *inputs: TensorType) -> bool:
        """Whether the output, which is known to have the type of the first input, is that input."""
        return self.keeps_order

    def batch_obstacle(self, *inputs: Any, **_: Any) -> str:
        return ""

    def batch_obstacle_among(self, types: Sequence[TensorType], batched: Sequence[bool]) -> str:
        """`batch_obstacle`, told which of the inputs depend on the batch."""
        return self.batch_obstacle(*types)

    def attributes(self) -> dict[str, Any]:
        """The attributes that differ from their defaults, in declaration order."""
        return {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.default is MISSING or getattr(self, f.name) != f.default
        }


_REGISTRY: dict[str, type[Operator]] = {}
_KINDS: dict[type[Operator], dict[str, Any]] = {}
_Record = TypeVar("_Record", bound=Operator)


@dataclass_transform(frozen_default=True)
def operator(name: str, *aliases: str) -> Callable[[type[_Record]], type[_Record]]:
    """Registers a class as the record of the operator `name`; aliases are other names that readers meet."""

    def register(cls: type[_Record]) -> type[_Record]:
        record = dataclass(frozen=True)(cls)
        record.op = name
        for key in (name, *aliases):
            if key in _REGISTRY:
                raise GraphError(f"operator {key} is registered twice")
            _REGISTRY[key] = record
        return record

    return register


def find_operator(name: str) -> type[Operator]:
    """The record of an operator name; GraphError if there is none."""
    if not is_operator(name):
        raise GraphError(f"operator {name} is not known; if a plug-in brings it, install that")
    return _REGISTRY[name]


def is_operator(name: str) -> bool:
    """Whether an operator has a record; only a name that is not MRT's own has plug-ins loaded."""
    if name not in _REGISTRY:
        load_plugins("operators")
    return name in _REGISTRY


def registered_operators() -> Iterator[type[Operator]]:
    """Every record once, in the order of registration."""
    load_plugins("operators")
    return iter(dict.fromkeys(_REGISTRY.values()))


def parse_operator(name: str, attributes: Mapping[str, str]) -> Operator:
    """An operator from MXNet's string attributes, such as {"kernel": "(3, 3)", "no_bias": "True"}.

    Keys in double underscores are user annotations and are dropped; other keys that the record lacks must be in
    its `ignored` set. Raises GraphError naming the key, what was found and what is needed.
    """
    record = find_operator(name)
    known = _attribute_kinds(record)
    ignored: frozenset[str] = getattr(record, "ignored", frozenset())
    values = {}
    for key, text in attributes.items():
        if key in known:
            values[key] = parse_attribute(text, known[key], f"{name}.{key}")
        elif key not in ignored and not (key.startswith("__") and key.endswith("__")):
            raise GraphError(f"{name} has no attribute {key} (found {text!r}); it has {sorted(known)}")
    missing = [f.name for f in fields(record) if f.default is MISSING and f.name not in values]
    if missing:
        raise GraphError(f"{name} needs the attributes {missing}")
    return record(**values)


def _attribute_kinds(record: type[Operator]) -> dict[str, Any]:
    """The attributes' annotated types by name."""
    if record not in _KINDS:
        hints = get_type_hints(record)
        _KINDS[record] = {f.name: hints[f.name] for f in fields(record)}
    return _KINDS[record]


def parse_attribute(text: str, kind: Any, where: str) -> Any:
    """A value of type `kind` from MXNet's text form; GraphError if the text is no such value."""
    if kind is str:
        return text
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        value = text
    try:
        return coerce(value, kind)
    except (TypeError, ValueError, OverflowError):
        raise GraphError(f"{where} is {text!r}; {_describe(kind)} is needed") from None


def coerce(value: Any, kind: Any) -> Any:
    """`value` as the annotated type `kind`; ValueError or TypeError if it is not one."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        return coerce(value, next(a for a in args if a is not type(None)))
    if origin is tuple:
        items = value if isinstance(value, (tuple, list)) else (value,)
        return tuple(coerce(item, args[0]) for item in items)
    if kind is bool:
        if value in (0, 1):
            return bool(value)
        raise ValueError(value)
    if kind is int:
        if isinstance(value, bool) or int(value) != value:
            raise ValueError(value)
        return int(value)
    if kind is float:
        return float(value)
    if kind is str and isinstance(value, str):
        return value
    raise TypeError(value)


def _describe(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind)).replace("typing.", "")
