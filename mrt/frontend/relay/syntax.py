"""What a Relay text says, as data: types, expressions, functions. Nothing here knows what operators mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

from mrt.symbol import Array

# Compared by identity: equality and printing of long chains would recurse.


@dataclass(frozen=True, eq=False, repr=False)
class TensorSyntax:
    """Tensor[(sizes), dtype]; None is a size that is not known. A bare dtype has no sizes."""

    shape: tuple[int | None, ...]
    dtype: str


@dataclass(frozen=True, eq=False, repr=False)
class TupleSyntax:
    items: tuple[TypeSyntax, ...]


@dataclass(frozen=True, eq=False, repr=False)
class OtherType:
    """A type that no tensor has: of a function, a reference, an algebraic data type."""

    name: str


TypeSyntax = TensorSyntax | TupleSyntax | OtherType

AttributeValue = Union[
    bool, int, float, str, None, "MetaReference", list["AttributeValue"], dict[str, "AttributeValue"]
]


@dataclass(frozen=True, eq=False, repr=False)
class Local:
    """%name: a parameter, a variable of let, or a numbered binding; perhaps with projections, as in %3.0."""

    name: str
    line: int


@dataclass(frozen=True, eq=False, repr=False)
class GlobalName:
    name: str
    line: int


@dataclass(frozen=True, eq=False, repr=False)
class OperatorName:
    name: str
    line: int


@dataclass(frozen=True, eq=False, repr=False)
class Scalar:
    value: Array


@dataclass(frozen=True, eq=False, repr=False)
class MetaReference:
    """meta[key][index]: an entry of the metadata section."""

    key: str
    index: int
    line: int


@dataclass(frozen=True, eq=False, repr=False)
class Call:
    callee: Expression
    arguments: Sequence[Expression]
    attributes: Mapping[str, AttributeValue]
    line: int


@dataclass(frozen=True, eq=False, repr=False)
class Tuple:
    items: tuple[Expression, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Projection:
    value: Expression
    index: int


@dataclass(frozen=True, eq=False, repr=False)
class Condition:
    """if (test) {…} else {…}, which no graph can hold: the test and the two bodies."""

    line: int
    parts: tuple[Expression | Body, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Parameter:
    name: str
    type: TypeSyntax | None


@dataclass(frozen=True, eq=False, repr=False)
class Binding:
    """%0 = value; or let %name = value;"""

    name: str
    value: Expression


@dataclass(frozen=True, eq=False, repr=False)
class Body:
    bindings: Sequence[Binding]
    result: Expression


@dataclass(frozen=True, eq=False, repr=False)
class Function:
    parameters: Sequence[Parameter]
    result_type: TypeSyntax | None
    body: Body
    line: int


Expression = (
    Local | GlobalName | OperatorName | Scalar | MetaReference | Call | Tuple | Projection | Condition | Function
)


@dataclass(frozen=True, eq=False, repr=False)
class Module:
    """The functions of a text by name, and its metadata section as it stands there."""

    functions: Mapping[str, Function]
    metadata: str | None = field(default=None)
