"""Where `copy` keeps Relay's optimizer from moving a multiplication, which is proven to fit 32 bits where it stands.

FoldScaleAxis (opt_level 3) moves a multiplier by channel through additions and rectifiers into the weights of a
convolution or dense layer, in front of it or behind. Sums of products that were proven to fit become the products of
these sums, and a bias in front is divided. SimplifyExpr (every opt_level, in later versions) makes (x + a) b of
constants x b + a b, joins the constants of x a b and of x + a + b, and factors x x + x y + y y. None of these has a
rule for `copy`, and no pass takes one away; fused with its neighbours it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mrt.export.relay.expressions import Argument, Call, Scalar, Value

RULED = frozenset(
    {
        *("add", "subtract", "multiply", "nn.bias_add", "nn.relu", "nn.leaky_relu"),
        *("nn.conv2d", "nn.conv3d", "nn.dense"),
    }
)
"""The operators that those passes have rules for."""
TRANSPARENT = frozenset({"cast", "reshape", "transpose", "nn.pad"})
"""Operators that passes cancel against each other or fold into their neighbours, which so come to stand together."""


def needs_barrier(operator: str, inputs: Sequence[Value], value: Value, is_known: Callable[[Value], bool]) -> bool:
    """Whether a copy must stand between a call of `operator` and what makes `value`, one of its `inputs`.

    is_known: whether an argument is a parameter, which TVM knows while it compiles.
    """
    source = _source(value)
    if operator not in RULED or not isinstance(source, Call) or source.operator not in RULED:
        return False
    if "multiply" in (operator, source.operator):
        return True
    return operator == source.operator == "add" and all(
        any(is_constant(_source(term), is_known) for term in terms) for terms in (inputs, source.inputs)
    )


def is_constant(value: Value, is_known: Callable[[Value], bool]) -> bool:
    return isinstance(value, Scalar) or (isinstance(value, Argument) and is_known(value))


def _source(value: Value) -> Value:
    """What makes the value, behind operators that may vanish."""
    while isinstance(value, Call) and value.operator in TRANSPARENT:
        value = value.inputs[0]
    return value
