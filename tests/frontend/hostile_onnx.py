"""What the tests of hostile ONNX models share."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hostile import bounded
from onnx import helper

from mrt.errors import MRTError
from mrt.frontend.onnx import from_onnx

RNG = np.random.default_rng(12)
HUGE = 2**62


def node(op_type: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    """A node whose inputs and outputs are given as words; `_` stands for one left out."""
    return helper.make_node(
        op_type, ["" if name == "_" else name for name in inputs.split()], outputs.split(), **attributes
    )


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def refused(model: onnx.ModelProto, words: str, megabytes: int = 64) -> None:
    with bounded(megabytes), pytest.raises(MRTError, match=words) as caught:
        from_onnx(model)
    assert "\n" not in str(caught.value)


floats = np.float32
