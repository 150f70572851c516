"""How a model is compiled, whatever it computes."""

from __future__ import annotations

from typing import Any

import pytest
from networks import IntegerNetwork

from mrt.backend import build
from mrt.backend.job import Job
from mrt.blas import _libraries


def test_models_are_lowered_by_one_thread_of_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM has the cores meanwhile: a product of several threads would wait for one of them."""
    libraries = _libraries()
    if not libraries:
        pytest.skip("NumPy's BLAS is not OpenBLAS here")
    before = [library.get() for library in libraries]
    inside: list[int] = []
    with_quantizers = build.with_quantizers

    def noted(*given: Any, **options: Any) -> Any:
        inside.extend(library.get() for library in libraries)
        return with_quantizers(*given, **options)

    monkeypatch.setattr(build, "with_quantizers", noted)
    for library in libraries:
        library.set(2)
    try:
        network = IntegerNetwork(1)
        build.lower_model(Job.of(network.graph, network.inputs, network.outputs, None, "0" * 64))
        assert inside == [1] * len(libraries)
        assert [library.get() for library in libraries] == [2] * len(libraries)
    finally:
        for library, count in zip(libraries, before, strict=True):
            library.set(count)
