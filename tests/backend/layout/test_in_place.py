"""Results are written over an input that dies where they are computed, and over no other."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from blocks import SHAPE, Blocks
from compiled import assert_same_values
from layers import runnable

from mrt.backend import TvmRunner
from mrt.backend.build import compile_executable
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.machine import Machine
from mrt.runtime import virtual_machine


@pytest.mark.parametrize("cpu", ["native", "x86-64-v3", "cascadelake"])
def test_a_chain_of_residual_blocks_is_summed_in_place(cpu: str) -> None:
    """The sum and what is requantized of it come of one function, which has the old sum as the new one's memory."""
    if cpu not in ("native", *runnable()):
        pytest.skip(f"this machine does not run code for {cpu}")
    blocks = Blocks()
    data = blocks.stem()
    for _ in range(3):
        data = blocks.block(data, blocks.byte(data))
    blocks.finish(blocks.convolution(blocks.byte(data), 16, (1, 1)))
    # The last one is requantized only.
    assert len(blocks.written_over()) == 2
    blocks.check(runner=TvmRunner({"mcpu": cpu}))


def test_what_is_written_over_is_right_in_every_call() -> None:
    blocks = Blocks()
    data = blocks.stem()
    data = blocks.block(data, blocks.byte(data))
    blocks.finish(blocks.convolution(blocks.byte(data), 16, (1, 1)))
    graph = blocks.graph()
    run = TvmRunner().prepare(graph)
    (name,) = blocks.feeds
    for seed in range(3):
        feeds = {name: np.random.default_rng(seed).integers(-200, 200, SHAPE).astype(np.int16)}
        assert_same_values(graph, run(feeds), graph.evaluate(feeds))


@pytest.mark.parametrize("cpu", ["native", "x86-64-v3", "cascadelake"])
def test_no_element_of_a_sum_in_place_is_computed_twice(cpu: str) -> None:
    """Of an odd number of blocks of output channels whose sums are read in pairs, the last pair must not overlap."""
    if cpu not in ("native", *runnable()):
        pytest.skip(f"this machine does not run code for {cpu}")
    blocks = Blocks()
    given = blocks.requantized(blocks.input(blocks.integers((1, 16, 14, 14), "int16", -200, 200)))
    data = blocks.requantized(blocks.convolution(given, 48, (1, 1)), "int8")
    inner = blocks.requantized(blocks.convolution(data, 48, (1, 1)), "int8")
    total = blocks.hidden("elemwise_add", blocks.requantized(blocks.convolution(inner, 48, (1, 1)), "int8"), data)
    new = blocks.requantized(total, "int8")
    blocks.finish(blocks.convolution(new, 16, (1, 1)))
    assert blocks.written_over() == [new.name]
    blocks.check(runner=TvmRunner({"mcpu": cpu}))


def test_the_sum_of_a_tensor_with_itself_is_in_place() -> None:
    blocks = Blocks()
    data = blocks.stem()
    total = blocks.hidden("elemwise_add", data, data)
    blocks.finish(blocks.convolution(blocks.byte(total), 16, (1, 1)))
    assert blocks.written_over() == [total.name]
    blocks.check()


@pytest.mark.parametrize(
    "why",
    ["", "read later", "an output", "an input", "a part of a Concat", "read by its convolution"],
)
def test_what_is_needed_still_is_not_written_over(why: str) -> None:
    """Without a reason, it is."""
    blocks = Blocks()
    data = blocks.stem()
    held = data
    if why == "an input":
        held = blocks.input(blocks.integers((3, 32, 9, 7), "int16", 0, 4000))
    if why == "a part of a Concat":
        whole = blocks.hidden("Concat", data, blocks.word(blocks.convolution(blocks.byte(data), 32, (1, 1))), dim=1)
        blocks.add("Pooling", whole, kernel=(2, 2), pool_type="max")
    if why == "read by its convolution":
        total = blocks.hidden("elemwise_add", blocks.word(blocks.convolution(data, 32, (1, 1))), data)
        new = blocks.hidden("Cast", blocks.hidden("clip", total, a_min=0.0, a_max=4000.0), dtype="int16")
    else:
        new = blocks.block(data, blocks.byte(data), held)
    last = blocks.block(new, blocks.byte(new))
    if why == "read later":
        blocks.finish(blocks.hidden("elemwise_add", last, held))
    if why == "an output":
        blocks.outputs.append(data)
    blocks.finish(blocks.convolution(blocks.byte(last), 16, (1, 1)))
    assert (new.name in blocks.written_over()) is (not why)
    blocks.check()


def test_two_threads_sum_in_place() -> None:
    """Every element is read and written in one turn of one loop, so that threads may share it."""
    blocks = Blocks()
    given = blocks.input(blocks.integers((1, 64, 56, 56), "int16", -200, 200))
    data = blocks.word(blocks.convolution(blocks.requantized(given), 64, (1, 1)))
    inner = blocks.requantized(blocks.convolution(blocks.byte(data), 64, (1, 1)))
    total = blocks.hidden("elemwise_add", blocks.word(blocks.convolution(inner, 64, (1, 1))), data)
    new = blocks.hidden("Cast", blocks.hidden("clip", total, a_min=0.0, a_max=4000.0), dtype="int16")
    blocks.finish(blocks.hidden("elemwise_add", blocks.word(blocks.convolution(blocks.byte(new), 64, (1, 1))), new))
    assert blocks.written_over() == [new.name]
    graph, machine = blocks.graph(), Machine.of({"threads": 2})
    module_builder = ModuleBuilder(machine)
    module_builder.add(graph, "main")
    run = virtual_machine(compile_executable(module_builder.module(), machine))["main"]
    found = run(*(tvm.runtime.tensor(blocks.feeds[symbol.name]) for symbol in graph.inputs))
    assert_same_values(graph, [each.numpy() for each in found], graph.evaluate(blocks.feeds))
