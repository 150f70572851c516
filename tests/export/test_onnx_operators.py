"""Of what an exported ONNX model is made: documented operators, integers of at most 32 bits, factors that are exact."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import onnx
from corners import graph_of
from exported import exported

from mrt.model import assemble
from mrt.quantization.expand import expand_graph
from mrt.symbol import TensorType
from tests.matrix_cases import CASES
from tests.quantization.networks import observe

DOCUMENT = Path(__file__).parents[2] / "docs" / "export.md"


def test_values_are_integers_of_at_most_32_bits() -> None:
    """But for lengths, places and axes, which ONNX has in int64, and booleans; by operators that are documented."""
    listed = re.search(r"^ONNX operators that occur: (.*?)\.$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert listed is not None
    documented = set(re.split(r",\s+", listed[1]))
    seen = set()
    for case in CASES[::5]:
        ranges = observe(case.graph, [case.draw(1)])
        integer = expand_graph(case.graph, ranges, case.config("affine", "affine"))
        model = assemble(integer, None, {})
        found = onnx.shape_inference.infer_shapes(exported(model.graph, model.inputs)).graph
        values = [*found.input, *found.output, *found.value_info]
        assert {name for node in found.node for name in node.output} <= {value.name for value in values}
        places = {node.output[0] for node in found.node if node.op_type in ("ArgMax", "ArgMin")}
        seen |= {
            onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name
            for value in values
            if value.name not in places
        }
        assert {node.op_type for node in found.node} <= documented and {node.domain for node in found.node} <= {""}
        assert all(np.dtype(onnx.numpy_helper.to_array(t).dtype).kind in "iub" for t in found.initializer)
    assert seen <= {"bool", "int8", "uint8", "int16", "int32"}


def test_factors_of_eight_bits_are_unsigned() -> None:
    """Kernels for uint8 and int8 may saturate where the processor lacks VNNI; those for uint8 and uint8 do not."""
    seen = 0
    for left, right in itertools.product(("int8", "uint8"), repeat=2):
        graph = graph_of("batch_dot", TensorType((2, 3, 4), left), TensorType((2, 4, 3), right))
        model = onnx.shape_inference.infer_shapes(exported(graph)).graph
        types = {v.name: v.type.tensor_type.elem_type for v in (*model.input, *model.value_info, *model.output)}
        for node in model.node:
            if node.op_type == "MatMulInteger":
                assert [types[name] for name in node.input[:2]] == [onnx.TensorProto.UINT8] * 2
                seen += 1
    assert seen == 4
