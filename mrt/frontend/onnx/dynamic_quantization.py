"""Dynamic quantization of ONNX Runtime: what it rounds anew at every run is read as the float that it stands for.

DynamicQuantizeLinear gives integers, a scale and a zero point of which a product of integers and a multiplication make
the float product of x and the weight's integers again, up to the rounding of x. That rounding is replaced by this
program's own, whose scales are calibrated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from mrt.frontend.onnx.constants import MOVING, is_standard

_READERS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "ConvInteger": ((0, 2),),
    "DequantizeLinear": ((0, 2),),
    "MatMulInteger": ((0, 2), (1, 3)),
    "com.microsoft.MatMulIntegerToFloat": ((0, 4), (1, 5)),
}
"""By product, and what makes a float of the integers: the places of an operand and of its zero point."""
_SCALES = frozenset({"DequantizeLinear", "Mul", "com.microsoft.MatMulIntegerToFloat"})
"""What may read the scale: what multiplies the product by it."""
_Readers = Mapping[str, Sequence[tuple[onnx.NodeProto, int]]]
"""By the name of a value, the nodes that read it, each with the place of the value among its inputs."""
NOTE = (
    "dynamic quantization ({count} DynamicQuantizeLinear: {names}) is read as the float that it stands for: its scales "
    "would be computed anew at every run; the integers of its weights stay, activations are quantized by calibration"
)


def with_static_scales(
    nodes: Sequence[onnx.NodeProto], outputs: Collection[str]
) -> tuple[list[onnx.NodeProto], tuple[str, ...]]:
    """The nodes with Identity, scale 1 and zero point 0 for each DynamicQuantizeLinear of which all that reads it is
    products of integers and their scaling, and a note; others stay, and so do those that give an output.
    """
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in nodes:
        for place, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, place))
    replaced = [n for n in nodes if _kind(n) == "DynamicQuantizeLinear" and _means_products(n, readers, outputs)]
    given = {node.output[0] for node in replaced}
    reals = {name for node in replaced for name in _moved(node.output[0], readers)}
    made: list[onnx.NodeProto] = []
    for node in nodes:
        if node.output and node.output[0] in given:
            made += _static(node)
        elif _kind(node) == "DequantizeLinear" and node.input[0] in reals:
            made.append(helper.make_node("Identity", [node.input[0]], list(node.output), name=node.name))
        else:
            made.append(node)
    names = [node.name or node.output[0] for node in replaced]
    shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    return made, (NOTE.format(count=len(names), names=shown),) if names else ()


def _kind(node: onnx.NodeProto) -> str:
    return str(node.op_type if is_standard(node) else f"{node.domain}.{node.op_type}")


def _means_products(node: onnx.NodeProto, readers: _Readers, outputs: Collection[str]) -> bool:
    if len(node.input) != 1 or len(node.output) != 3:
        return False
    integers, scale, zero = node.output
    pairs = {(kind, pair) for kind, places in _READERS.items() for pair in places}
    of_integers, of_zeros = ({(kind, pair[k]) for kind, pair in pairs} for k in (0, 1))
    moved = _moved(integers, readers)
    read = {(_kind(reader), place) for name in moved for reader, place in readers.get(name, ())}
    return (
        not {*moved, scale, zero} & set(outputs)
        and {(kind, place) for kind, place in read if kind not in MOVING} <= of_integers
        and {(_kind(reader), place) for reader, place in readers.get(zero, ())} <= of_zeros
        and all(_kind(reader) in _SCALES for reader, _ in readers.get(scale, ()))
    )


def _moved(name: str, readers: _Readers) -> list[str]:
    """A value and what moves its elements."""
    found = [name]
    for each in found:
        for reader, place in readers.get(each, ()):
            if _kind(reader) in MOVING and place == 0:
                found += [output for output in reader.output if output not in found]
    return found


def _static(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    integers, scale, zero = node.output
    one, nothing = numpy_helper.from_array(np.float32(1), scale), numpy_helper.from_array(np.uint8(0), zero)
    return [
        helper.make_node("Identity", [node.input[0]], [integers], name=node.name),
        helper.make_node("Constant", [], [scale], value=one),
        helper.make_node("Constant", [], [zero], value=nothing),
    ]
