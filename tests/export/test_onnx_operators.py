"""Every operator with an integer form, quantized in every way and exported: ONNX Runtime gives the same integers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from exported import assert_same, exported

from mrt.model import assemble
from tests.matrix import CASES, Case, extreme_feeds
from tests.quantization.networks import quantize_and_run

DOCUMENT = Path(__file__).parents[2] / "docs" / "export.md"
GROUPS = 6
"""So many tests hold the cases, each a mixture of them."""


def check(case: Case, bits: int) -> None:
    samples = [case.draw(seed) for seed in (1, 2)]
    configs = list(case.configs(bits))
    for config in configs if bits == 8 else configs[-1:]:
        integer = quantize_and_run(case.graph, samples, config).integer
        model = assemble(integer, None, {})
        ordinary = [model.quantize_inputs(feeds) for feeds in samples]
        assert_same(model.graph, exported(model.graph, model.inputs), [*ordinary, *extreme_feeds(integer)])


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("bits", [8, 16])
def test_every_operator(bits: int, group: int) -> None:
    """Ordinary integers, and all at the ends of their ranges; eight bits with every pair of quantizers."""
    for case in CASES[group::GROUPS]:
        try:
            check(case, bits)
        except Exception as error:
            raise AssertionError(f"{case}: {error}") from error


def test_values_are_integers_of_at_most_32_bits() -> None:
    """But for lengths, places and axes, which ONNX has in int64, and booleans; by operators that are documented."""
    listed = re.search(r"^ONNX operators that occur: (.*?)\.$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert listed is not None
    documented = set(re.split(r",\s+", listed[1]))
    seen = set()
    for case in CASES[::5]:
        integer = quantize_and_run(case.graph, [case.draw(1)], case.config("affine", "affine")).integer
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
