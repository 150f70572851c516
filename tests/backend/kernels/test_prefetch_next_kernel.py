"""Weights that are fetched while the kernel before multiplies: each line once, and no integer depends on it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tvm
from compiled import Bundle
from tvm import tirx

from mrt.backend.build import compile_executable
from mrt.backend.kernels.generic.prefetch_next_kernel import before_each_step, prefetching_steps
from mrt.backend.link import one_function as joined
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.machine import Machine
from mrt.backend.schedule.loops import LINE_BYTES
from mrt.backend.te.stages import Hint
from mrt.backend.tir.statements import sequence, serial
from mrt.runtime import virtual_machine

TARGET = {"kind": "llvm", "mcpu": "sapphirerapids", "threads": 1}
LAYERS = 3


def chain() -> Bundle:
    """Convolutions of 64 channels, each of which reads what the one before gives."""
    bundle = Bundle()
    data = bundle.input(bundle.integers((1, 64, 8, 8), "uint8"))
    for _ in range(LAYERS):
        weight = bundle.parameter(bundle.integers((64, 64, 3, 3), lo=-127))
        sums = bundle.hidden("Convolution", data, weight, kernel=(3, 3), pad=(1, 1), num_filter=64, no_bias=True)
        limited = bundle.hidden("clip", sums, a_min=0.0, a_max=255.0)
        data = bundle.hidden("Cast", limited, dtype="uint8")
    bundle.add("relu", data)
    return bundle


def test_steps_are_counted_in_the_order_in_which_they_are_done() -> None:
    """Through loops, one after the other and within each other, and the numbers that a run of them gives."""
    order = tirx.decl_buffer((64,), "int32", "order")
    done = tirx.decl_buffer((1,), "int32", "done")
    nothing = tirx.BufferStore(done, tirx.BufferLoad(done, [0]), [0])

    def marked(times: int) -> Any:
        return serial(tirx.Var("step", "int32"), times, nothing, Hint.PREFETCH_NEXT)

    inner = sequence([marked(3), serial(tirx.Var("tap", "int32"), 2, marked(4)), nothing, marked(1)])
    body = sequence([serial(tirx.Var("block", "int32"), 4, inner), nothing, marked(5)])
    assert prefetching_steps(tirx.PrimFunc([order, done], body)) == 4 * (3 + 2 * 4 + 1) + 5

    def note(step: Any) -> Any:
        at = tirx.BufferLoad(done, [0])
        return sequence([tirx.BufferStore(order, step, [at]), tirx.BufferStore(done, at + 1, [0])])

    function = tirx.PrimFunc([order, done], before_each_step(body, note)).with_attr("global_symbol", "run")
    noted, count = tvm.runtime.tensor(np.zeros(64, np.int32)), tvm.runtime.tensor(np.zeros(1, np.int32))
    tvm.compile(tvm.IRModule({"run": function}), "llvm")["run"](noted, count)
    np.testing.assert_array_equal(noted.numpy()[: int(count.numpy()[0])], np.arange(53))


@pytest.mark.parametrize("lead", [1 << 10, 1 << 16])
def test_calls_fetch_what_follows_one_after_the_other(monkeypatch: pytest.MonkeyPatch, lead: int) -> None:
    """From what is fetched of the first weights on, all weights are, each line by one call, up to the last ones."""
    monkeypatch.setattr(joined, "LEAD_BYTES", lead)
    module_builder = ModuleBuilder(Machine.of(TARGET))
    module_builder.add(chain().graph(), "main")
    module = module_builder.module()
    fetching = {name.name_hint for name, made in module.functions.items() if isinstance(made, tirx.PrimFunc)}
    fetching = {name for name in fetching if prefetching_steps(module[name])}
    found = joined.join_calls(module, prefetching=fetching)
    constants = np.from_dlpack(found.constants)
    spans = []
    for name, arguments in found.calls["main_calls"].kernels:
        if name in fetching:
            begin, count = (pointer.offset for pointer in arguments[-2:])
            spans.append((begin, int(constants[count : count + 4].view(np.int32)[0]) * LINE_BYTES))
    weight = 64 * 64 * 9
    assert len(spans) == LAYERS
    assert spans[0][0] == min(lead, weight)
    assert all(begin + size == after for (begin, size), (after, _) in pairwise(spans))
    assert spans[-1][1] == 0
    assert sum(size for _, size in spans) >= (LAYERS - 1) * weight


@pytest.mark.usefixtures("tiles")
def test_integers_are_the_same_where_weights_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined, "LEAD_BYTES", 1 << 10)
    bundle, machine = chain(), Machine.of(TARGET)
    graph = bundle.graph()
    module_builder = ModuleBuilder(machine)
    module_builder.add(graph, "main")
    executable = compile_executable(module_builder.module(), machine)
    assert "prefetcht1" in "".join(kernels.inspect_source("asm") for kernels in executable.kernels)
    found = virtual_machine(executable)["main"](*(tvm.runtime.tensor(bundle.feeds[each.name]) for each in graph.inputs))
    for one, other in zip(found, graph.evaluate(bundle.feeds), strict=True):
        np.testing.assert_array_equal(one.numpy(), other)
