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
    x = relax.Var("x", relax.TensorType((1, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        halves = builder.emit(op.split(builder.emit(op.tanh(x)), 2, axis=1))
        front = builder.emit(op.exp(halves[0]), name_hint="front")
        back = builder.emit(op.astype(halves[1], "int32"), name_hint="back")
        wrong = builder.emit(op.bitwise_not(back), name_hint="wrong")
        total = builder.emit(op.add(wrong, back), name_hint="total")
        builder.emit_func_output(relax.Tuple([front, total]))
    mod = builder.get()
    message = r"relax.bitwise_not ×1 \(wrong\); .*to end it before them, with 4 of its 6 operators: .*wrong"
    with pytest.raises(UnsupportedOperatorError, match=message):
        from_relax(mod)
    graph = from_relax(mod, split=["wron*"])
    assert graph.left_out == {"wrong": "relax.bitwise_not", "total": "relax.add"}
    feed = random(1, 4) * 3
    found = graph.evaluate({"x": feed})
    np.testing.assert_allclose(found[0], np.exp(np.tanh(feed[:, :2])), rtol=1e-5)
    assert len(found) == 2 and (found[1] == np.tanh(feed[:, 2:]).astype(np.int32)).all()
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
    mod = build(lambda x: op.nonzero(op.exp(x)), x=(1, 4))
    graph = from_relax(mod)
    assert list(graph.left_out.values()) == ["relax.nonzero"]
    np.testing.assert_allclose(graph.evaluate({"x": np.zeros((1, 4))})[0], np.ones((1, 4)))


def test_what_nothing_needs_is_not_read() -> None:
    x = relax.Var("x", relax.TensorType((2,), "int32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit(op.bitwise_not(x))
        result = builder.emit(op.abs(x))
        builder.emit_func_output(result)
    assert [symbol.op for symbol in from_relax(builder.get()).operators] == ["abs"]
