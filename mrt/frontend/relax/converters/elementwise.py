"""Elementwise Relax operators: activations, arithmetic with broadcasting, and those that change nothing."""

from __future__ import annotations

from mrt.frontend.relax.node import Node, converter
from mrt.frontend.shared.angles import angle
from mrt.frontend.shared.node import Value
from mrt.frontend.tvm.elementwise import (
    arithmetic,
    cast,
    dropout,
    extremum,
    merged_clip,
    negative,
    prelu,
    remainder,
    whole_quotient,
)
from mrt.symbol import Symbol
from mrt.symbol.operators.activation import LeakyReLU

converter("add", "subtract", "multiply", "divide")(arithmetic)
converter("astype")(cast)
converter("maximum", "minimum")(extremum)
converter("negative")(negative)
converter("floor_mod", "mod")(remainder)
converter("floor_divide")(whole_quotient)
converter("atan2")(angle)
converter("nn.dropout")(dropout)
converter("nn.prelu")(prelu)


@converter("nn.leakyrelu")
def leaky_relu(node: Node) -> Symbol:
    return node.apply(LeakyReLU(slope=node.number("alpha")), [node.symbol(0)])


@converter("clip")
def clip(node: Node) -> Symbol:
    return merged_clip(node, node.symbol(0), node.known_number(1, "min"), node.known_number(2, "max"))


@converter("builtin.stop_lift_params", "hint_on_device", "to_vdevice")
def identity(node: Node) -> Value:
    return node.input(0)
