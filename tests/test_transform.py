"""Quantization as a TVM module pass: what it gives, what it keeps from the caller, how it fails."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

import mrt
from mrt.backend.machine import Machine
from mrt.errors import DataError, UnsupportedOperatorError

RNG = np.random.default_rng(5)
SAMPLES = RNG.standard_normal((4, 3)).astype(np.float32)


def module(operator: object = relax.op.nn.relu) -> tvm.IRModule:
    """`main` applies one operator to a float32 tensor [1, 3]."""
    x = relax.Var("x", relax.TensorType((1, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(operator(x))  # type: ignore[operator]
        builder.emit_func_output(y)
    return builder.get()


def test_the_pass_gives_what_the_calls_give() -> None:
    float_module = module()
    config = mrt.QuantizationConfig(activation={"bits": 6})
    given = mrt.transform.Quantize([SAMPLES], config)(float_module)
    tvm.ir.assert_structural_equal(given, mrt.quantize(mrt.from_relax(float_module), [SAMPLES], config).to_relax())
    tvm.ir.assert_structural_equal(float_module, module())


@pytest.mark.parametrize("target", [None, {"mcpu": "native"}])
def test_what_the_pass_gives_is_compiled_by_tvm(target: dict[str, str] | None) -> None:
    """For any CPU by default, for the one that is named if one is."""
    given = mrt.transform.Quantize([SAMPLES], target=target)(module())
    made_for = tvm.target.Target("llvm") if target is None else Machine.of(target).target
    machine = relax.VirtualMachine(tvm.compile(given, made_for), tvm.cpu())
    model = mrt.quantize(mrt.from_relax(module()), [SAMPLES])
    for sample in SAMPLES:
        fed = model.quantize_inputs(sample[None])
        (found,) = machine["main"](*map(tvm.runtime.tensor, fed.values()))
        np.testing.assert_array_equal(found.numpy(), model.graph.evaluate(fed)[0])


def test_the_pass_stands_in_a_sequence() -> None:
    sequence = tvm.transform.Sequential([mrt.transform.Quantize([SAMPLES]), relax.transform.DeadCodeElimination()])
    assert "mrt.quantization" in sequence(module()).attrs


def test_errors_keep_their_kind() -> None:
    with pytest.raises(DataError, match="x .* holds nan"):
        mrt.transform.Quantize([SAMPLES * np.nan])(module())
    with pytest.raises(UnsupportedOperatorError, match="Cast"):
        mrt.transform.Quantize([SAMPLES])(module(lambda x: relax.op.astype(x, "int32")))
