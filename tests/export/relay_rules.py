"""The rules by which Relay's optimizer moves multiplications and joins constants, as far as tells where they apply."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from mrt.frontend.relay.syntax import Call, Expression, Function, Local, OperatorName, Scalar, Tuple
from mrt.frontend.relay.tensors import parse_parameters
from mrt.frontend.relay.text import parse_module

SUMS = {"nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.conv2d_transpose", "nn.dense"}
PASSING = {"add", "subtract", "multiply", "nn.relu", "nn.leaky_relu", "nn.prelu", "nn.bias_add"}
"""Operators through which FoldScaleAxis carries a multiplier, and some that a later version might."""
VANISHING = {"cast", "reshape", "transpose", "nn.pad", "layout_transform", "squeeze", "expand_dims"}
"""Operators that other passes may have taken away before."""


class Calls:
    """The calls of a function, and what makes each of their arguments."""

    def __init__(self, function: Function, parameters: Mapping[str, object]) -> None:
        self.parameters = parameters
        self.made: dict[str, Expression] = {b.name: b.value for b in function.body.bindings}
        results = [function.body.result]
        self.all = [e for e in (*self.made.values(), *results) if isinstance(e, Call)]

    def source(self, expression: Expression) -> Expression:
        """What makes a value, without what may vanish on the way."""
        while True:
            if isinstance(expression, Local) and expression.name in self.made:
                expression = self.made[expression.name]
            elif isinstance(expression, Call) and name_of(expression) in VANISHING:
                expression = expression.arguments[0]
            else:
                return expression

    def is_constant(self, expression: Expression) -> bool:
        source = self.source(expression)
        return isinstance(source, Scalar) or (isinstance(source, Local) and source.name in self.parameters)

    def sources(self, call: Call) -> list[Expression]:
        return [self.source(argument) for argument in call.arguments if not isinstance(argument, Tuple)]

    def reaches(self, call: Call, targets: set[str]) -> bool:
        """Whether an input of the call comes from one of `targets` through nothing but operators that pass scales."""
        pending, seen = self.sources(call), set()
        while pending:
            found = pending.pop()
            if not isinstance(found, Call) or id(found) in seen:
                continue
            seen.add(id(found))
            if name_of(found) in targets:
                return True
            if name_of(found) in PASSING:
                pending += self.sources(found)
        return False


def name_of(call: Call) -> str:
    assert isinstance(call.callee, OperatorName)
    return call.callee.name


def applicable(text: str, params: bytes) -> list[str]:
    """The rules that apply somewhere in the text, each as often."""
    (function,) = parse_module(text, "the text").functions.values()
    return applicable_to(function, parse_parameters(params, "the parameters"))


def applicable_to(function: Function, parameters: Mapping[str, object]) -> list[str]:
    """The rules that apply somewhere in the function of a text, each as often."""
    calls = Calls(function, parameters)
    return [rule for call in calls.all for rule in _rules(calls, call)]


def _rules(calls: Calls, call: Call) -> Iterator[str]:
    operator = name_of(call)
    if operator == "multiply" and calls.reaches(call, SUMS):
        yield "backward: FoldScaleAxis multiplies the weights of a sum in front"
    if operator in SUMS and calls.reaches(call, {"multiply"}):
        yield "forward: FoldScaleAxis multiplies the weights of a sum behind"
    inner = [found for found in calls.sources(call) if isinstance(found, Call)]
    if operator == "multiply" and any(name_of(found) == "multiply" for found in inner):
        yield "join: SimplifyExpr makes x a b of constants x (a b)"
    if operator in ("add", "multiply") and _has_constant(calls, call.arguments):
        constants = [name_of(found) for found in inner if _has_constant(calls, found.arguments)]
        if operator == "multiply" and "add" in constants:
            yield "switch: SimplifyExpr makes (x + a) b of constants x b + a b"
        if operator == "add" and "add" in constants:
            yield "join: SimplifyExpr makes x + a + b of constants x + (a + b)"
    if operator == "add" and {"add", "multiply"} <= {name_of(found) for found in inner}:
        sums = [found for found in inner if name_of(found) == "add"]
        if any(isinstance(x, Call) and name_of(x) == "multiply" for found in sums for x in calls.sources(found)):
            yield "factor: SimplifyExpr factors x x + x y + y y"


def _has_constant(calls: Calls, arguments: Sequence[Expression]) -> bool:
    return any(calls.is_constant(argument) for argument in arguments)


def without_copies(text: str) -> str:
    """The text with what reads a copy reading the value itself."""
    copied = dict(re.findall(r"^  %(\d+) = copy\(%(\w+)\)", text, re.MULTILINE))
    kept = re.sub(r"^  %\d+ = copy\(.*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"%(\d+)\b(?! =)", lambda match: f"%{copied.get(match[1], match[1])}", kept)
