"""Trained networks that TVM's own ONNX importer reads, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx as import_onnx

from mrt.frontend.relax import from_relax


@pytest.mark.parametrize(
    "name", ["kws_dscnn", "mlperf_resnet8_cifar10", "ad01_fp32", "kwt1_speechcommands12", "mobilenet_v1_0.25_224"]
)
@pytest.mark.parametrize("detached", [False, True])
def test_network_that_tvm_imports(data_folder: Path, name: str, detached: bool) -> None:
    path = data_folder / "models" / "onnx" / f"{name}.onnx"
    mod, params = import_onnx(onnx.load(path), keep_params_in_input=detached), None
    if detached:
        mod, params = relax.frontend.detach_params(mod)
    graph = from_relax(mod, params)
    assert len(graph.inputs) == 1
    data = np.random.default_rng(0).uniform(0, 255 if "resnet8" in name else 1, graph.inputs[0].shape)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    expected = session.run(None, {session.get_inputs()[0].name: data.astype("float32")})
    for ours, theirs in zip(graph.evaluate({graph.inputs[0].name: data}), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
    # TVM's importer writes Clip as calls of PrimFuncs.
    assert "mobilenet" not in name or graph.count_operators()["clip"] == 27
    if "kwt1" not in name:
        assert not {"broadcast_add", "transpose"} & set(graph.count_operators())
