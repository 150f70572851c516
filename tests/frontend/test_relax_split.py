"""Relax modules that are cut while they are read."""

from __future__ import annotations

import numpy as np
import pytest
from relax_modules import build, random
from tvm import relax

from mrt.errors import ConfigError, UnsupportedOperatorError
from mrt.frontend.relax import from_relax

op = relax.op


def test_what_follows_a_split_need_not_be_covered() -> None:
    def body(x: relax.Var) -> list[relax.Expr]:
        halves = op.split(op.tanh(x), 2, axis=1)
        front = op.exp(halves[0])
        return [front, op.add(op.bitwise_not(op.astype(halves[1], "int32")), op.astype(front, "int32"))]

    mod = build(body, x=(1, 4))
    message = r"relax.bitwise_not ×1 \((\w+)\); .*to end it before them, with 6 of its 8 operators: .*\1"
    with pytest.raises(UnsupportedOperatorError, match=message) as caught:
        from_relax(mod)
    name = str(caught.value).partition("×1 (")[2].partition(")")[0]
    graph = from_relax(mod, split=[name])
    assert graph.left_out[name] == "relax.bitwise_not" and [*graph.left_out.values()][1:] == ["relax.add"]
    x = random(1, 4) * 3
    front, back = graph.evaluate({"x": x})
    np.testing.assert_allclose(front, np.exp(np.tanh(x[:, :2])), rtol=1e-5)
    assert (back == np.tanh(x[:, 2:]).astype(np.int32)).all()
    with pytest.raises(ConfigError, match="'none' matches no operator of the model"):
        from_relax(mod, split=["none"])


def test_an_item_of_a_tuple_is_an_output_of_its_own() -> None:
    x = relax.Var("x", relax.TensorType((1, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        halves = builder.emit(op.split(x, 2, axis=1), name_hint="halves")
        whole = builder.emit(op.astype(halves[1], "int32"), name_hint="whole")
        builder.emit_func_output(builder.emit(op.bitwise_not(whole)))
    graph = from_relax(builder.get(), split=["whole"])
    assert [value.tolist() for value in graph.evaluate({"x": np.arange(4.0).reshape(1, 4)})] == [[[2, 3]]]


def test_a_choice_at_the_end_is_cut_by_itself() -> None:
    mod = build(lambda x: op.topk(op.exp(x), k=2, axis=1)[1], x=(1, 4))
    graph = from_relax(mod)
    assert list(graph.left_out.values()) == ["relax.topk"]
    np.testing.assert_allclose(graph.evaluate({"x": np.zeros((1, 4))})[0], np.ones((1, 4)))


def test_what_nothing_needs_is_not_read() -> None:
    x = relax.Var("x", relax.TensorType((2,), "int32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit(op.bitwise_not(x))
        result = builder.emit(op.abs(x))
        builder.emit_func_output(result)
    assert [symbol.op for symbol in from_relax(builder.get()).operators] == ["abs"]
