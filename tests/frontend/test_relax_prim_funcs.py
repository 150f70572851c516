"""Calls of PrimFuncs, read by what they compute, against what TVM gives when it runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from relax_modules import build, operators, random, run
from tvm import relax, topi

from mrt.errors import UnsupportedOperatorError
from mrt.frontend.relax import from_relax


def module(compute: Callable[..., Any], *shapes: tuple[int, ...]) -> tvm.IRModule:
    """A module whose `main` calls a PrimFunc, made of TVM's own library, that has no name to go by."""
    inputs = [relax.Var(f"x{place}", relax.TensorType(shape, "float32")) for place, shape in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", inputs):
        output = builder.emit_te(compute, *inputs, primfunc_name_hint="anything")
        builder.emit_func_output(output)
    return builder.get()


@pytest.mark.parametrize(
    ("compute", "shapes", "found"),
    [
        (lambda x: topi.nn.pad(x, [0, 0, 1, 2], [0, 0, 3, 1], 0.5), [(1, 2, 4, 5)], ["Pad"]),
        (lambda x: topi.nn.mirror_pad(x, [0, 0, 1, 2], [0, 0, 3, 1], "REFLECT"), [(1, 2, 5, 6)], ["Pad", "Pad"]),
        (lambda x: topi.nn.replicate_pad(x, [0, 0, 1, 2], [0, 0, 3, 1]), [(1, 2, 5, 6)], ["Pad", "Pad"]),
        (lambda x: topi.nn.circular_pad(x, [0, 0, 1, 2], [0, 0, 3, 1]), [(1, 2, 5, 6)], ["take", "take"]),
        (lambda x: topi.clip(x, -1, 1), [(3,)], ["clip"]),
        (lambda x, y: topi.maximum(x, y), [(1, 4, 3), (4, 1)], ["broadcast_maximum"]),
        (lambda x: topi.flip(x, axis=1), [(2, 3)], ["slice"]),
        (lambda x: topi.concatenate((x, topi.exp(x)), 1), [(1, 3, 4)], ["exp", "Concat"]),
        (lambda x: topi.transpose(x, (0, 2, 1, 3)), [(1, 3, 4, 5)], ["transpose"]),
        (lambda x: topi.reshape(x, (3, 8)), [(2, 3, 4)], ["Reshape"]),
        (lambda x: topi.tile(x, [2, 3]), [(2, 3)], ["take", "take"]),
        (lambda x: topi.strided_slice(x, [0, 1], [3, 5], [1, 2]), [(3, 6)], ["slice"]),
    ],
)
def test_what_is_computed(compute: Callable[..., Any], shapes: list[tuple[int, ...]], found: list[str]) -> None:
    mod = module(compute, *shapes)
    feeds = {f"x{place}": random(*shape, seed=place) for place, shape in enumerate(shapes)}
    graph = from_relax(mod)
    assert operators(graph) == found
    for ours, theirs in zip(graph.evaluate(feeds), run(mod, feeds), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def test_a_reduction_is_refused_with_what_it_is() -> None:
    mod = module(lambda x: topi.sum(x, 1), (3, 4))
    with pytest.raises(UnsupportedOperatorError, match=r"gv = anything, where block x0_red is a reduction"):
        from_relax(mod)


def test_a_lowered_module_names_the_pass_to_leave_out() -> None:
    mod = build(lambda x: relax.op.nn.softmax(relax.op.exp(x)), x=(2, 3))
    lowered = relax.transform.LegalizeOps()(mod)
    with pytest.raises(UnsupportedOperatorError, match=r"every operator is a call_tir, as .*LegalizeOps makes them"):
        from_relax(lowered)


def test_functions_of_elements_are_read_after_lowering() -> None:
    """And after TVM fused them into one PrimFunc of several blocks."""
    mod = build(lambda x: relax.op.exp(relax.op.nn.relu(x)), x=(2, 3))
    passes = relax.transform
    fused = tvm.transform.Sequential(
        [passes.LegalizeOps(), passes.AnnotateTIROpPattern(), passes.FuseOps(), passes.FuseTIR()]
    )(mod)
    x = random(2, 3)
    for lowered in (passes.LegalizeOps()(mod), fused):
        graph = from_relax(lowered)
        assert operators(graph) == ["relu", "exp"]
        np.testing.assert_allclose(graph.evaluate({"x": x})[0], np.exp(np.maximum(x, 0)), rtol=1e-6)
