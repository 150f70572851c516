"""The operators of QONNX as their published definitions have them, and small models of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

DOMAIN = "qonnx.custom_op.general"

ROUNDINGS = {
    "ROUND": np.round,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": lambda x: np.sign(x) * np.ceil(np.abs(x)),
    "DOWN": np.fix,
    "ROUND_TO_ZERO": np.fix,
    "HALF_UP": lambda x: np.sign(x) * np.floor(np.abs(x) + np.float32(0.5)),
    "HALF_DOWN": lambda x: np.sign(x) * np.ceil(np.abs(x) - np.float32(0.5)),
}


def limits(bits: int, signed: bool, narrow: bool) -> tuple[int, int]:
    """The least and the greatest integer of so many bits."""
    if signed:
        return -(2 ** (bits - 1)) + int(narrow), 2 ** (bits - 1) - 1
    return 0, 2**bits - 1 - int(narrow)


def int_quant(
    x: np.ndarray, scale: Any, zero: Any, bits: int, signed: bool = True, narrow: bool = False, mode: str = "ROUND"
) -> np.ndarray:
    """scale (clip(round(x / scale + zero)) - zero), float32."""
    scale, zero = np.float32(scale), np.float32(zero)
    q = np.clip(ROUNDINGS[mode](x / scale + zero), *limits(bits, signed, narrow))
    return ((q - zero) * scale).astype(np.float32)


def node(operator: str, inputs: Sequence[str], output: str, domain: str = "", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, list(inputs), [output], domain=domain, **attributes)


def quant_node(data: str, output: str, parameters: str, domain: str = DOMAIN, **attributes: Any) -> onnx.NodeProto:
    """A Quant whose scale, zero point and bits are called as the parameters and `_s`, `_z`, `_b`."""
    names = [data, *(f"{parameters}_{role}" for role in "szb")]
    return node(attributes.pop("operator", "Quant"), names, output, domain, **attributes)


def quant_constants(name: str, scale: Any, zero: Any = 0.0, bits: Any = 8.0) -> dict[str, np.ndarray]:
    values = {f"{name}_s": scale, f"{name}_z": zero, f"{name}_b": bits}
    return {key: np.asarray(value, np.float32) for key, value in values.items()}


def model_of(
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int],
    constants: Mapping[str, np.ndarray],
    outputs: Sequence[str] = ("y",),
    opset: int = 13,
) -> onnx.ModelProto:
    """A model of one input x, with the domains that its nodes have."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    domains = sorted({item.domain for item in nodes} - {""})
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)
