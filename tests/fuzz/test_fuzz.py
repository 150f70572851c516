"""The tool itself: what goes wrong in a case is found and told, and a case is always the same."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mrt.errors import MRTError, UnsupportedOperatorError
from mrt.symbol import GraphBuilder, Interval, TensorType
from mrt.symbol.operators.activation import Relu
from tests.fuzz import graphs
from tests.fuzz.case import Limits, Outcome, isolated
from tests.fuzz.draw import Draw
from tests.fuzz.files import refusal
from tests.fuzz.growth import Grown
from tests.fuzz.mutation import damaged

ROOT = Path(__file__).parents[2]


def spin() -> Outcome:
    while True:
        pass


def fill() -> Outcome:
    return Outcome(finding=str(len(bytearray(2**31))))


def wait() -> Outcome:
    time.sleep(600)
    return Outcome()


def fail() -> Outcome:
    raise KeyError("what is no MRTError")


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (lambda: os.abort(), "crash: SIGABRT"),
        (lambda: os._exit(3), "crash: status 3"),
        (spin, "crash: SIGXCPU"),
        (wait, "hang: no answer after 3 s"),
        (fill, "MemoryError"),
        (fail, "KeyError: 'what is no MRTError'"),
    ],
)
def test_what_must_not_happen_is_a_finding(work: Callable[[], Outcome], said: str) -> None:
    finding = isolated(work, Limits(1, 512, patience=3 if work is wait else 900)).finding
    assert said in finding
    assert work not in (spin, wait) or f"in {work.__name__}" in finding  # where it was


def test_what_was_tried_comes_back() -> None:
    outcome = Outcome()
    outcome.tried["relu"] += 2
    outcome.refused["relu"] += 1
    assert isolated(lambda: outcome, Limits(5, 512)) == outcome


def refuse(text: str) -> None:
    raise MRTError(text)


def test_a_refusal_is_an_error_of_ours_with_a_text() -> None:
    assert refusal(lambda: None, "onnx") == []
    assert refusal(lambda: refuse("it is no model"), "onnx") == ["onnx"]
    with pytest.raises(AssertionError, match="one line is needed"):
        refusal(lambda: refuse(""), "onnx")
    with pytest.raises(KeyError):
        refusal(fail, "onnx")


def relu() -> Grown:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((3,), "int8"))
    graph = builder.graph([builder.apply(Relu(), [x], "y")])
    return Grown(graph, {"x": (-128, 127)}, [{"x": np.array([-128, 0, 127], np.int8)}])


def test_a_tensor_outside_of_its_bounds_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not graphs.outside(relu())
    monkeypatch.setattr(Relu, "bounds", lambda self, x: Interval.of(0, 126, x.shape))
    assert "holds [0, 127]" in graphs.outside(relu())


def test_an_engine_that_disagrees_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    for engine in (graphs.onnx_runtime, graphs.c, lambda found: graphs.compiled(found, {"mcpu": "x86-64"})):
        engine(relu())
    monkeypatch.setattr(Relu, "evaluate", lambda self, x: np.maximum(x, 1))
    for engine in (graphs.onnx_runtime, graphs.c, lambda found: graphs.compiled(found, {"mcpu": "x86-64"})):
        outcome = Outcome()
        graphs.compare_engine("engine", engine, relu(), outcome)
        assert outcome.finding.startswith("engine: AssertionError")
        assert "%y : int8[3] = relu(%x)" in outcome.finding


def unsupported(found: Grown) -> None:
    raise UnsupportedOperatorError("no form of relu")


def test_a_format_that_lacks_an_operator_refuses() -> None:
    outcome = Outcome()
    graphs.compare_engine("format", unsupported, relu(), outcome)
    assert (outcome.finding, outcome.refused["format"]) == ("", 1)


def test_a_seed_makes_the_same_graph_and_the_same_damage() -> None:
    made = [graphs.grown(Draw(0, 1, 2), Outcome()) for _ in range(2)]
    assert str(made[0].graph) == str(made[1].graph)
    assert made[0].ranges == made[1].ranges
    content = b'{"a": [1, 2, {"b": "c"}]}' * 3
    found = {damaged(Draw(0, 1, 2), content, b"other") for _ in range(3)}
    assert len(found) == 1 and content not in found


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_command_says_what_it_tried() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--kind", "graphs", "--cases", "1", "--seed", "5"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "graphs, seed 5: 4 cases, 0 findings" in done.stdout
    for engine in ("native", "ONNX Runtime 4"):
        assert engine in done.stdout
