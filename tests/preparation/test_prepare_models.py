"""Real networks give after preparation what they gave before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mrt.frontend import load_model
from mrt.preparation import prepare
from mrt.symbol.operators.normalization import BatchNorm, Dropout, Softmax
from mrt.symbol.operators.reduce import Mean
from mrt.symbol.rebatch import Rebatch

MODELS = {
    "ad01_fp32": 0,
    "kws_dscnn": 1,
    "kwt1_speechcommands12": 0,
    "mlperf_resnet8_cifar10": 1,
    "mobilenet_v1_0.25_224": 1,
    "resnet20_cifar10.dyn": 0,
}
"""Models and how many softmaxes their tails have."""


@pytest.mark.parametrize(("name", "softmaxes"), MODELS.items())
def test_outputs_stay(name: str, softmaxes: int, data_folder: Path) -> None:
    graph = load_model(data_folder / "models" / "onnx" / f"{name}.onnx")
    prepared = prepare(graph)
    random = np.random.default_rng(0)
    feeds = {s.name: random.normal(size=s.shape).astype(s.dtype) for s in graph.inputs}
    found = prepared.graph.evaluate(feeds)
    if prepared.postprocess is not None:
        assert prepared.postprocess.count_operators()[Softmax.op] == softmaxes
        found = prepared.postprocess.evaluate(
            {s.name: value for s, value in zip(prepared.postprocess.inputs, found, strict=True)}
        )
    for a, b in zip(graph.evaluate(feeds), found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5 * float(np.abs(a).max()))
    assert not {BatchNorm.op, Dropout.op, Mean.op} & set(prepared.graph.count_operators())
    if name != "kwt1_speechcommands12":
        batched = Rebatch(2)(prepared.graph).evaluate({k: np.concatenate([v, v * 0.5]) for k, v in feeds.items()})
        alone = prepared.graph.evaluate(feeds)
        assert all(np.allclose(b[:1], a, rtol=1e-5, atol=1e-5) for a, b in zip(alone, batched, strict=True))
