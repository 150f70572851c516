"""Calls of PrimFuncs, read by what they compute, against what TVM gives when it runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from relax_modules import build, operators, random, run
from tvm import relax, topi
from tvm.relax.frontend.onnx import from_onnx as import_onnx

import mrt
from mrt.errors import UnsupportedOperatorError
from mrt.frontend.relax import from_relax
from mrt.symbol import NumpyRunner


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
        (lambda x, y: topi.einsum("bij,bjk->bik", x, y), [(2, 3, 4), (2, 4, 5)], ["batch_dot"]),
        (lambda x, y, z: topi.einsum("i,ij,j->", x, y, z), [(2,), (2, 3), (3,)], None),
        (lambda x: topi.einsum("ijk->ki", x), [(2, 3, 4)], ["sum", "transpose"]),
        (
            lambda x: topi.nn.softmax(x),
            [(2, 5)],
            ["max", "Reshape", "broadcast_sub", "exp", "sum", "Reshape", "broadcast_div"],
        ),
        (lambda x: topi.min(x, axis=(0, 2)), [(2, 3, 4)], ["min"]),
        (lambda x: topi.strided_slice(x, [0, 1], [3, 5], [1, 2]), [(3, 6)], ["slice"]),
    ],
)
def test_what_is_computed(compute: Callable[..., Any], shapes: list[tuple[int, ...]], found: list[str] | None) -> None:
    mod = module(compute, *shapes)
    feeds = {f"x{place}": random(*shape, seed=place) for place, shape in enumerate(shapes)}
    graph = from_relax(mod)
    assert found is None or operators(graph) == found
    for ours, theirs in zip(graph.evaluate(feeds), run(mod, feeds), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def test_a_reduction_is_refused_with_what_it_is() -> None:
    mod = module(lambda x: topi.prod(x, 1), (3, 4))
    with pytest.raises(
        UnsupportedOperatorError,
        match=r"relax.call_tir of anything ×1 \(gv: block x0_red is a reduction that is no sum, largest or smallest",
    ):
        from_relax(mod)


def test_a_lowered_module_names_the_pass_to_leave_out() -> None:
    mod = build(lambda x, w: relax.op.nn.conv2d(relax.op.exp(x), w), x=(1, 2, 4, 4), w=(3, 2, 3, 3))
    lowered = relax.transform.LegalizeOps()(mod)
    with pytest.raises(UnsupportedOperatorError, match=r"every operator is a call_tir, as .*LegalizeOps makes them"):
        from_relax(lowered)


def test_what_was_fused_is_refused_with_its_name() -> None:
    mod = build(lambda x, w: relax.op.exp(relax.op.nn.conv2d(x, w)), x=(1, 2, 4, 4), w=(3, 2, 3, 3))
    passes = relax.transform
    steps = [passes.LegalizeOps(), passes.AnnotateTIROpPattern(), passes.FuseOps(), passes.FuseTIR()]
    with pytest.raises(
        UnsupportedOperatorError, match=r"call_tir of fused_\w+ ×1 \(\w+: block \w+ reduces over windows"
    ):
        from_relax(tvm.transform.Sequential(steps)(mod))


def test_an_onnx_network_that_tvm_imports_is_compiled_to_its_integers() -> None:
    """Pad, Clip and Tile, all of which TVM's importer writes as calls of PrimFuncs."""
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32) / 4
    constants = {
        "w": weight,
        "pads": [0, 0, 1, 0, 0, 0, 1, 2],
        "low": 0.0,
        "high": 6.0,
        "zero": 0.0,
        "reps": [1, 1, 2, 1],
    }
    nodes = [
        ("Pad", ["x", "pads"], "padded", {"mode": "reflect"}),
        ("Conv", ["padded", "w"], "c", {}),
        ("Clip", ["c", "low", "high"], "clipped", {}),
        ("Tile", ["clipped", "reps"], "tiled", {}),
        ("Pad", ["tiled", "pads"], "y", {}),
    ]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(kind, inputs, [output], **more) for kind, inputs, output, more in nodes],
        "network",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 3, 6, 6))],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(_array(value), name) for name, value in constants.items()],
    )
    mod = import_onnx(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)]))
    network = from_relax(mod)
    assert {"Pad", "clip", "Convolution"} <= set(operators(network))
    x = random(1, 3, 6, 6)
    (expected,) = run(mod, {"x": x})
    np.testing.assert_allclose(network.evaluate({"x": x})[0], expected, rtol=1e-5, atol=1e-5)
    model = mrt.quantize(network, [x, random(1, 3, 6, 6, seed=1)], runner=NumpyRunner())
    integers = model.quantize_inputs(x)
    found = model.compile({"mcpu": "native", "threads": 1}).run_integer(integers)
    assert (np.asarray(found) == model.graph.evaluate(integers)[0]).all()


def _array(value: Any) -> np.ndarray:
    array = np.asarray(value)
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int64)


def test_functions_of_elements_are_read_after_lowering() -> None:
    """And after TVM fused them into one function of calls, and into one PrimFunc of several blocks."""
    mod = build(lambda x: relax.op.exp(relax.op.nn.relu(x)), x=(2, 3))
    passes = relax.transform
    steps = [passes.LegalizeOps(), passes.AnnotateTIROpPattern(), passes.FuseOps(), passes.FuseTIR()]
    x = random(2, 3)
    for last in (1, 3, 4):
        lowered = tvm.transform.Sequential(steps[:last])(mod)
        graph = from_relax(lowered)
        assert operators(graph) == ["relu", "exp"]
        np.testing.assert_allclose(graph.evaluate({"x": x})[0], np.exp(np.maximum(x, 0)), rtol=1e-6)
