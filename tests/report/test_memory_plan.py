"""The memory plan that is told is that of the compiled module, and in it no two tensors share a byte at once."""

from __future__ import annotations

import numpy as np
import pytest

import mrt
from mrt.backend.memory_plan import memory_plan_of
from mrt.compilation import TargetConfig
from mrt.report.memory import memory_text
from mrt.report.page.page import report_html
from mrt.runtime import MAIN, MEMORY, virtual_machine
from tests.made_reports import made_report, names
from tests.report.small_network import small_model


@pytest.fixture(scope="module")
def model() -> mrt.QuantizedModel:
    return small_model()


def test_the_plan_is_that_of_the_compiled_module(model: mrt.QuantizedModel) -> None:
    target = TargetConfig(threads=1)
    plan = memory_plan_of(model.graph, model.inputs, target)
    memory, _ = virtual_machine(model.compile(target)._linked.code)[MAIN + MEMORY]()
    _, workspace, outputs = memory
    assert (plan.workspace, plan.outputs) == (workspace.shape[0], outputs.shape[0])
    assert plan.separate > plan.workspace


def test_tensors_that_are_needed_at_once_lie_apart(model: mrt.QuantizedModel) -> None:
    plan = memory_plan_of(model.graph, model.inputs)
    held = np.zeros((len(plan.alive), plan.workspace), np.int64)
    for tensor in plan.tensors:
        if not tensor.is_output:
            held[tensor.first : tensor.last + 1, tensor.offset : tensor.offset + tensor.size] += 1
    assert held.max() == 1
    assert all(taken <= alive for taken, alive in zip(held.sum(1), plan.alive, strict=True))
    assert max(plan.alive) <= plan.workspace


def test_inspect_tells_it_in_rows(model: mrt.QuantizedModel) -> None:
    plan, text = memory_plan_of(model.graph, model.inputs), memory_text(model, "native")
    rows = text.split("\n\n")[0].splitlines()
    assert len(rows) == 1 + len(plan.tensors) and rows[0].split()[0] == "tensor"
    assert f"tensors in between: {plan.workspace} bytes" in text and f"at once {max(plan.alive)}" in text


def test_the_page_draws_it() -> None:
    report = made_report(names(5))
    html = report_html(report)
    assert html.count("<rect ") == 5 and "Most is needed at function 2 of 5, " in html
    assert report.time is not None
    bare = report.time.memory.model_copy(update={"tensors": []})
    time = report.time.model_copy(update={"memory": bare})
    assert "Memory plan" not in report_html(report.model_copy(update={"time": time}))
