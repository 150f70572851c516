"""From Relay text to its syntax: comments cut off, then parsed by the grammar of relay.lark."""

from __future__ import annotations

import codecs
import functools
import re
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
from lark import Lark, Token, Transformer, UnexpectedInput, v_args

from mrt.errors import ModelFileError, MRTError
from mrt.frontend.relay.syntax import (
    AttributeValue,
    Binding,
    Body,
    Call,
    Condition,
    Expression,
    Function,
    GlobalName,
    Local,
    MetaReference,
    Module,
    OperatorName,
    OtherType,
    Parameter,
    Projection,
    Scalar,
    TensorSyntax,
    Tuple,
    TupleSyntax,
    TypeSyntax,
)
from mrt.symbol import Array

_DEEPEST = {"{": 200, "[": 200, "(": 20_000}
"""How deep functions may be nested, lists in attributes, and calls and tuples."""
_CLOSED = {"}": "{", "]": "[", ")": "("}

_PIECES = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|%(?:(?!/\*)[^\s,;(){}=\[\]"])+|/\*|//[^\n]*|#\[metadata\]|[^"%/#]+|.', re.DOTALL
)
"""Strings and names, in which no comment begins; what begins a comment or the metadata; anything else."""
_COMMENT_ENDS = re.compile(r"/\*|\*/")
_OTHER_SYNTAX = re.compile(r"(?:^|[\s=])(match|type|extern|ref|free_var)\b\??\s*[\w(%]", re.MULTILINE)
_NUMBER = re.compile(r"(-?[\d.einfa+-]+?)(f\d*|[iu]\d+)?")
_ESCAPES = re.compile(r'\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|["\\ntr\'abfv?])')


def parse_module(text: str, title: str) -> Module:
    """What a text says. `title` is what errors call it.

    Raises ModelFileError, with the line, where it is no Relay text or only a part of one.
    """
    code, metadata = _without_comments(text, title)
    if not code.strip():
        raise ModelFileError(f"{title} holds no function; a Relay text as mod.astext() gives it is needed")
    _check_depth(code, title)
    try:
        functions: Any = _parser().parse(code)
    except UnexpectedInput as error:
        raise _error(title, error.line, _found(error, code)) from None
    except _SyntaxError as error:
        raise _error(title, error.line, str(error)) from None
    return Module(functions, metadata)


class _SyntaxError(MRTError):
    """What the grammar allows and Relay does not."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def _error(title: str, line: int | None, found: str) -> ModelFileError:
    place = f", line {line}" if line is not None and line > 0 else ""
    return ModelFileError(f"{title}{place}: {found}")


def _found(error: UnexpectedInput, code: str) -> str:
    token = getattr(error, "token", None)
    if token is not None and token.type == "$END":
        return "the text ends in the middle of a function; it is truncated: print or copy it again"
    place = error.pos_in_stream or 0
    word = re.compile(r"[\w.]+|\S|$").search(code, place)
    found = word[0][:40] if word else ""
    other = _OTHER_SYNTAX.search(code, code.rfind("\n", 0, place) + 1, place + len(found))
    if other is not None:
        return f"{other[1]} is found; algebraic data types, references and free variables are not read"
    return f"{found!r} is found, which Relay's grammar does not allow here; print or copy the text again"


def _without_comments(text: str, title: str) -> tuple[str, str | None]:
    """The code with blanks for comments, which nest, and the metadata section. Lines stay where they were."""
    pieces: list[str] = []
    place = 0
    while place < len(text):
        piece = _PIECES.match(text, place)
        found = piece[0] if piece is not None else text[place]
        if found == "#[metadata]":
            return "".join(pieces), text[place + len(found) :]
        if found == "/*":
            end = _comment_end(text, place)
            if end is None:
                raise _error(title, text.count("\n", 0, place) + 1, "a comment does not end; the text is truncated")
            found = "\n" * text.count("\n", place, end) or " "
            place = end
        else:
            place += len(found)
            found = " " if found.startswith("//") else found
        pieces.append(found)
    return "".join(pieces), None


def _comment_end(text: str, begin: int) -> int | None:
    depth = 0
    for mark in _COMMENT_ENDS.finditer(text, begin):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return None


def _check_depth(code: str, title: str) -> None:
    """ModelFileError where brackets are nested deeper than any printed text has them."""
    depth = dict.fromkeys(_DEEPEST, 0)
    for mark in re.finditer(r'"(?:[^"\\\n]|\\.)*"|[{}\[\]()]', code):
        found = mark[0]
        if found in _CLOSED:
            depth[_CLOSED[found]] -= 1
        elif found in _DEEPEST:
            depth[found] += 1
            if depth[found] > _DEEPEST[found]:
                line = code.count("\n", 0, mark.start()) + 1
                raise _error(title, line, f"{found} is nested more than {_DEEPEST[found]} deep")


@functools.cache
def _parser() -> Lark:
    grammar = (files("mrt.frontend.relay") / "relay.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", transformer=_Builder(), maybe_placeholders=True)


class _Attribute(tuple[str, AttributeValue]):
    """A name and its value among arguments."""


@v_args(inline=True)
class _Builder(Transformer[Token, Any]):
    """Makes syntax of what the parser recognizes, from the inside out; nothing recurses."""

    # Lists

    def nothing(self) -> list[Any]:
        return []

    def one(self, item: Any) -> list[Any]:
        return [item]

    def more(self, items: list[Any], item: Any) -> list[Any]:
        items.append(item)
        return items

    def items(self, items: list[Any]) -> list[Any]:
        return items

    arguments = types = sizes = items

    # Modules and functions

    def start(self, *found: Any) -> dict[str, Function]:
        content = found[-1]
        if isinstance(content, Body):
            # An expression alone: a function that is printed without a module.
            if not isinstance(content.result, Function) or content.bindings:
                raise _SyntaxError("an expression is found; a module or a function is needed")
            return {"main": content.result}
        functions: dict[str, Function] = {}
        for name, function in content:
            if name in functions:
                raise _SyntaxError(f"two functions are called @{name}", function.line)
            functions[name] = function
        return functions

    def definition(self, name: Token, *rest: Any) -> tuple[str, Function]:
        return name[1:], self._function(name.line or 0, rest)

    def function(self, word: Token, *rest: Any) -> Function:
        return self._function(word.line or 0, rest)

    def type_parameters(self, *names: Token) -> None:
        return None

    def _function(self, line: int, rest: Sequence[Any]) -> Function:
        items, result_type, body = rest[-3:]
        parameters = [item for item in items if isinstance(item, Parameter)]
        names = [parameter.name for parameter in parameters]
        if len(set(names)) < len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            raise _SyntaxError(f"two parameters are called %{repeated}", line)
        return Function(parameters, result_type, body, line)

    def parameter(self, name: Token, type: TypeSyntax | None) -> Parameter:
        return Parameter(name[1:], type)

    def body(self, bindings: list[Binding], result: Expression) -> Body:
        return Body(bindings, result)

    def graph_binding(self, bindings: list[Binding], name: Token, value: Expression) -> list[Binding]:
        bindings.append(Binding(name[1:], value))
        return bindings

    def let_binding(
        self, bindings: list[Binding], name: Token, type: TypeSyntax | None, value: Expression
    ) -> list[Binding]:
        bindings.append(Binding(name[1:], value))
        return bindings

    # Expressions

    def local(self, name: Token) -> Local:
        return Local(name[1:], name.line or 0)

    def global_name(self, name: Token) -> GlobalName:
        return GlobalName(name[1:], name.line or 0)

    def operator(self, name: Token) -> OperatorName:
        return OperatorName(str(name), name.line or 0)

    def number_scalar(self, text: Token) -> Scalar:
        return Scalar(_scalar(text))

    def true_scalar(self) -> Scalar:
        return Scalar(np.asarray(True))

    def false_scalar(self) -> Scalar:
        return Scalar(np.asarray(False))

    def scalar(self, value: Scalar) -> Scalar:
        return value

    def meta(self, key: Token, index: Token) -> MetaReference:
        return MetaReference(str(key), _integer(index), key.line or 0)

    def call(self, callee: Expression, arguments: list[Any]) -> Call:
        attributes: dict[str, AttributeValue] = {}
        line = callee.line if isinstance(callee, (Local, GlobalName, OperatorName, Function)) else 0
        for argument in arguments:
            if isinstance(argument, _Attribute):
                if argument[0] in attributes:
                    raise _SyntaxError(f"attribute {argument[0]} is given twice", line)
                attributes[argument[0]] = argument[1]
        return Call(callee, [item for item in arguments if not isinstance(item, _Attribute)], attributes, line)

    def projection(self, value: Expression, index: Token) -> Projection:
        return Projection(value, _integer(index, index[1:]))

    def unit(self) -> Tuple:
        return Tuple(())

    def grouped(self, expression: Expression) -> Expression:
        return expression

    def single(self, expression: Expression) -> Tuple:
        return Tuple((expression,))

    def several(self, first: Expression, rest: list[Expression]) -> Tuple:
        return Tuple((first, *rest))

    def condition(self, word: Token, *parts: Any) -> Condition:
        return Condition(word.line or 0, tuple(part for part in parts if not isinstance(part, Token)))

    # Attributes

    def attribute(self, name: Token, value: AttributeValue) -> _Attribute:
        return _Attribute((str(name), value))

    def number(self, text: Token) -> int | float:
        value = _scalar(text).item()
        return value if isinstance(value, (int, float)) else float(value)

    def string(self, text: Token) -> str:
        return _ESCAPES.sub(lambda escape: codecs.decode(escape[0], "unicode_escape"), text[1:-1])

    def true(self) -> bool:
        return True

    def false(self) -> bool:
        return False

    def none(self) -> None:
        return None

    def empty_list(self) -> list[AttributeValue]:
        return []

    def array(self, values: list[AttributeValue]) -> list[AttributeValue]:
        return values

    def empty_map(self) -> dict[str, AttributeValue]:
        return {}

    def mapping(self, attributes: Sequence[_Attribute]) -> dict[str, AttributeValue]:
        return dict(attributes)

    # Types

    def tensor(self, sizes: Sequence[int | None], dtype: Token) -> TensorSyntax:
        if min((size for size in sizes if size is not None), default=0) < 0:
            raise _SyntaxError(f"the shape {tuple(sizes)} has a negative size", dtype.line)
        return TensorSyntax(tuple(sizes), str(dtype))

    def bare_type(self, dtype: Token) -> TypeSyntax:
        return TensorSyntax((), str(dtype))

    def other_type(self, name: Token, items: Any) -> OtherType:
        return OtherType(str(name))

    def empty_tuple_type(self) -> TupleSyntax:
        return TupleSyntax(())

    def tuple_type(self, items: Sequence[TypeSyntax]) -> TupleSyntax:
        return TupleSyntax(tuple(items))

    def function_type(self, *parts: Any) -> OtherType:
        return OtherType("a function")

    def size(self, text: Token) -> int:
        return _integer(text)

    def unknown_size(self) -> None:
        return None


def _integer(token: Token, text: str | None = None) -> int:
    text = token if text is None else text
    if not re.fullmatch(r"-?\d{1,19}(i\d+)?", text):
        raise _SyntaxError(f"{text[:40]} is found; an integer of at most 19 digits is needed", token.line)
    return int(text.partition("i")[0])


def _scalar(token: Token) -> Array:
    """A number in the dtype of its suffix, an integer of 32 bits where it has none."""
    found = _NUMBER.fullmatch(token)
    digits, suffix = (found[1], found[2] or "") if found is not None else (str(token), "")
    dtype = _dtype_of(suffix)
    try:
        if dtype is None:
            raise ValueError
        if dtype.kind == "f":
            with np.errstate(over="ignore"):
                return np.asarray(float(digits)).astype(dtype)
        value = _integer(token, digits)
        if not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            raise ValueError
        return np.asarray(value, dtype)
    except (ValueError, _SyntaxError):
        raise _SyntaxError(f"{token[:40]} is no number of Relay, such as 3, 0.5f or -7i64", token.line) from None


def _dtype_of(suffix: str) -> np.dtype[Any] | None:
    kinds: dict[str, Callable[[str], str]] = {"f": lambda bits: f"float{bits or 32}", "i": lambda bits: f"int{bits}"}
    kinds["u"] = lambda bits: f"uint{bits}"
    name = kinds[suffix[0]](suffix[1:]) if suffix else "int32"
    known = {"float16", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}
    return np.dtype(name) if name in known else None
