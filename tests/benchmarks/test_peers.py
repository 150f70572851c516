"""What engines are given and how they are timed."""

from __future__ import annotations

import platform
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest
from loaded import BENCHMARKS, load_benchmark
from onnx import helper

from mrt.backend.batches import BatchPlan
from mrt.compilation import TargetConfig

peers = load_benchmark("peers")


@pytest.mark.parametrize("batch", [1, 3, 5, 8])
def test_all_samples_are_run_in_order_whatever_the_batch(batch: int) -> None:
    memory = np.empty((batch, 2), np.float32)  # an engine may give its own
    shapes = []

    def bind(x: np.ndarray) -> object:
        shapes.append(x.shape)
        return lambda: np.copyto(memory, x * 2) or memory

    test = np.arange(10, dtype=np.float32).reshape(5, 2)
    np.testing.assert_array_equal(peers.outputs_of(bind, test, batch), test * 2)
    assert shapes == [(batch, 2)] * -(-5 // batch)


def test_a_turn_has_calls_enough_and_ends() -> None:
    calls = []
    found = peers.times_of(lambda: calls.append(0), seconds=1e-9)
    assert len(found) == peers.LEAST and len(calls) == peers.LEAST + 1  # the first is not timed
    assert len(peers.times_of(lambda: None, seconds=0.02)) > peers.LEAST
    assert all(time >= 0 for time in found)


@pytest.mark.parametrize(("samples", "workers"), [(4, 1), (2, 1), (1, 2)])
def test_a_batch_of_floats_runs_in_the_parts_that_are_planned(
    samples: int, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = helper.make_tensor("w", onnx.TensorProto.FLOAT, [3, 2], range(6))
    data = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 3])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Concat", ["h", "x"], ["y"], axis=1)]
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 5])
    graph = helper.make_graph(nodes, "g", [data], [result], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / peers.NETWORK)
    monkeypatch.setattr(
        "mrt.backend.plan_batch", lambda *_: BatchPlan(samples, workers, TargetConfig(threads=1), samples)
    )
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    (found,) = peers.start_mrt_float(str(tmp_path), 1, 4)(x)()
    np.testing.assert_allclose(found, np.hstack([x @ np.arange(6).reshape(3, 2), x]))


@pytest.mark.skipif((platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="there is no AMX elsewhere")
def test_amx_is_refused_and_nothing_else() -> None:
    code = """
        import ctypes, errno, os, threading
        import peers
        peers.refuse_amx()
        library = ctypes.CDLL(None, use_errno=True)
        granted = ctypes.c_uint64()
        def ask():
            refused.append(library.syscall(158, 0x1023, 18) == -1 and ctypes.get_errno() == errno.EPERM)
        refused = []
        ask()
        thread = threading.Thread(target=ask)
        thread.start(); thread.join()
        assert refused == [True, True], refused
        assert library.syscall(39) == os.getpid()
        library.syscall(158, 0x1022, ctypes.byref(granted))
        assert not granted.value & 1 << 18
        print(open(peers.__file__).read(3))
    """
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=BENCHMARKS, capture_output=True, text=True
    )
    assert (child.stdout, child.stderr) == ('"""\n', "")


def test_several_outputs_of_a_sample_are_compared_together() -> None:
    test = np.arange(10.0).reshape(5, 2)
    found = peers.outputs_of(lambda x: lambda: [x, x[:, :1, None] + 0.5], test, 2)
    np.testing.assert_array_equal(found, np.hstack([test, test[:, :1] + 0.5]))
