"""Every construct of Relay's printed grammar, in small texts whose meaning NumPy has."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest
from relay_texts import VERSION, evaluate, function, metadata, parameters, random, run, tensor

import mrt
from mrt.errors import DataError, GraphError, ModelFileError, UnsupportedOperatorError
from mrt.frontend import load_model
from mrt.frontend.relay import from_relay, read_relay_file

X = random(2, 3)


def one(text: str, *feeds: np.ndarray) -> np.ndarray:
    (output,) = evaluate(text, *feeds)
    return output


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("add(%x, %x)", X + X),
        ("%x", X),
        ("((%x))", X),
        ("(%x, negative(%x)).1", -X),
        ("(%x, (%x, negative(%x))).1.1", -X),
        ("(%x,).0", X),
        ("split(%x, indices_or_sections=3, axis=1).2", X[:, 2:]),
        ("fn (%y: Tensor[(2, 3), float32]) { negative(%y) }(%x)", -X),
        ("fn (%y: Tensor[(2, 3), float32], Primitive=1) -> Tensor[(2, 3), float32] { negative(%y) }(%x)", -X),
        ("fn [A](%y) { %x }(%x)", X),
        ("copy(copy(copy(%x,),),)", X),
    ],
)
def test_expressions(result: str, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(one(function(result, x=(2, 3)), X), expected)


def test_bindings_are_read_once_and_only_where_they_are_needed() -> None:
    lines = ["%0 = negative(%x)", "%1 = tan(%x)", "let %a = add(%0, %0)", "let %b: fn () -> float32 = %f"]
    graph = from_relay(function("multiply(%a, %0)", lines, x=(2, 3)))
    np.testing.assert_array_equal(run(graph, X)[0], 2 * X * X)
    assert [symbol.name for symbol in graph.operators] == ["negative_0", "a", "multiply"]


def test_let_shadows_and_typed_lets() -> None:
    text = function(
        "%a",
        ["let %a: Tensor[(2, 3), float32] = negative(%x)", "let %b = (%a, %x)", "let %a = add(%b.0, %b.0)"],
        x=(2, 3),
    )
    np.testing.assert_array_equal(one(text, X), -2 * X)


def test_functions_are_inlined_and_see_what_is_around_them() -> None:
    text = (
        f"{VERSION}def @twice[A](%y: {tensor((2, 3))}) -> {tensor((2, 3))} {{\n  add(%y, %y)\n}}\n\n"
        f"def @main(%x: {tensor((2, 3))}, my=1, other=[1, 2]) {{\n"
        "  let %f: fn (float32) -> float32 = fn (%z) {\n    %0 = @twice(%z);\n    add(%0, %x)\n  };\n"
        "  %1 = %f(%x);\n  let %g = @twice;\n  %g(%1)\n}\n"
    )
    np.testing.assert_allclose(one(text, X), 6 * X, rtol=1e-6)


def test_a_function_alone_is_the_main_one() -> None:
    np.testing.assert_array_equal(one(f"{VERSION}fn (%x: {tensor((2, 3))}) {{\n  negative(%x)\n}}\n", X), -X)
    np.testing.assert_array_equal(one(f"v0.0.4\ndef @other(%x: {tensor((2, 3))}) {{ negative(%x) }}", X), -X)
    np.testing.assert_array_equal(one(f"def @other(%x: {tensor((2, 3))}) {{ negative(%x) }}", X), -X)


def test_comments_nest_and_do_not_begin_in_strings_or_names() -> None:
    text = f"""{VERSION}// a line %x ( "
def @main(%a//b/x: {tensor((2, 3))} /* ty={tensor((2, 3))} span=/a.b/c:0:0 */, note="/* no comment // */") {{
  %0 = negative(%a//b/x /* outer /* inner */ still ( [ */) /* ty=? */; // rest
  add(%0/**/, %0)
}}
/* end */
"""
    np.testing.assert_array_equal(one(text, X), -2 * X)


@pytest.mark.parametrize(
    "name", ["x", "linear.weight", "onnx::Conv_284", "b.0.n1.weight", "in.put/0:x", "with-dash", "a.1", "%", "é", "let"]
)
def test_names_of_arguments(name: str) -> None:
    text = f"{VERSION}def @main(%{name}: {tensor((2, 3))}) {{\n  %0 = (%{name}, %{name});\n  add(%0.0, %{name})\n}}"
    graph = from_relay(text)
    assert graph.inputs[0].name == name
    np.testing.assert_array_equal(run(graph, X)[0], 2 * X)


def test_a_whole_name_comes_before_a_projection() -> None:
    text = function("subtract(%a.0, %a.1)", x=(2, 3), a="(" + tensor((2, 3)) + ",)")
    with pytest.raises(GraphError, match="argument a is no tensor"):
        from_relay(text)
    text = function("fn (%a, %a.0) { subtract(%a.0, %a.1) }((%x, %x), negative(%x))", x=(2, 3))
    np.testing.assert_array_equal(one(text, X), -2 * X)


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("0.5f", np.float32(0.5)),
        ("1e-10f", np.float32(1e-10)),
        ("3.4e+38f", np.float32(3.4e38)),
        ("1.67772e+07f", np.float32(16777200)),
        ("-0f", np.float32(-0.0)),
        ("inff", np.float32(np.inf)),
        ("-inff", np.float32(-np.inf)),
        ("0.0999756f16", np.float32(np.float16(0.0999756))),
        ("0.333333f64", np.float32(0.333333)),
    ],
)
def test_float_scalars(literal: str, value: np.float32) -> None:
    found = one(function(f"where(less(0f, 1f), {literal}, 0f)"))
    np.testing.assert_array_equal(found, value)
    assert np.signbit(found) == np.signbit(value)


@pytest.mark.parametrize(
    ("literal", "value", "dtype"),
    [
        ("-7", -7, "int32"),
        ("1099511627776i64", 2**40, "int64"),
        ("-300i16", -300, "int16"),
        ("200u8", 200, "uint8"),
        ("True", True, "bool"),
        ("False", False, "bool"),
    ],
)
def test_other_scalars(literal: str, value: int, dtype: str) -> None:
    graph = from_relay(function(literal))
    assert graph.outputs[0].type.dtype == dtype
    np.testing.assert_array_equal(run(graph)[0], value)


@pytest.mark.parametrize("literal", ["300i8", "1f8", "2147483648", "99999999999999999999", "1.5i64", "1.5", "nan"])
def test_scalars_that_are_none(literal: str) -> None:
    with pytest.raises((ModelFileError, GraphError), match="line 3"):
        from_relay(function(literal))


def test_attributes_of_every_kind() -> None:
    """They are told from inputs, completed by defaults, and read in every form that is written."""
    result = 'nn.max_pool2d(%x, pool_size=[2i64, 2], strides=2, padding=[1], layout="NC\\x48W", ceil_mode=False)'
    data = random(1, 2, 4, 4)
    padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    expected = padded.reshape(1, 2, 3, 2, 3, 2).max(axis=(3, 5))
    np.testing.assert_array_equal(one(function(result, x=(1, 2, 4, 4)), data), expected)
    for value in ("None", "{a=1, b=[2, 3f]}", "[[1, 2], []]", "{}", "meta[relay.attrs.Any][0]", '"text"'):
        with pytest.raises(GraphError, match=r"line 3, nn.relu: attribute odd is not known; these are: none"):
            from_relay(function(f"nn.relu(%x, odd={value})", x=(2, 3)))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("nn.softmax(%x, axis=1f)", "attribute axis is '1.0'; integers"),
        ("nn.leaky_relu(%x, alpha=True)", "attribute alpha is 'True'; a number"),
        ("sum(%x, keepdims=[1])", "attribute keepdims is 'list'; True or False"),
        ("cast(%x, dtype=1)", "attribute dtype is '1'; a text"),
        ("clip(%x, a_min=0f)", "attribute a_max is missing"),
        ("nn.relu(%x, %x)", "2 inputs are given; 1 are needed"),
        ("nn.softmax(%x, axis=2)", "axis 2 is outside"),
        ("add(%x, (%x, %x))", "a tuple"),
        ("add(%x, fn () { %x })", "a function is given"),
        ("%x(%x)", "a tensor or tuple is called"),
        ("%y", "%y is not defined"),
        ("%x.0", "item 0"),
        ("@f(%x)", "@f is not defined"),
        ("nn.relu", "is not called"),
        ("()", "empty tuple"),
        ("fn (%a) { %a }()", "of 1 arguments is called with 0"),
        ("fn (%a: Tensor[(3, 2), float32]) { %a }(%x)", r"argument %a has shape \(2, 3\); the text says \(3, 2\)"),
        ("fn (%a: (float32, float32)) { %a }((%x, %x, %x)).0", "has 3 items; the text says 2"),
        ("meta[relay.Constant][0]", r"line 3: there is no metadata section; print with astext\(show_meta_data=True\)"),
    ],
)
def test_what_is_malformed_is_told_with_its_line(call: str, said: str) -> None:
    with pytest.raises((GraphError, ModelFileError), match=said) as error:
        from_relay(function(call, x=(2, 3)))
    assert "line 3" in str(error.value) or "@main" in str(error.value) or "module is malformed" in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no function"),
        (VERSION, "holds no function|truncated"),
        (f"{VERSION}def @main(", "truncated"),
        (f"{VERSION}def @main() {{ 1f /* open", "comment does not end"),
        (f"{VERSION}def @main() {{\n 1f ) }}", r"line 3: '\)' is found"),
        (f"{VERSION}def @main() {{ match (1f) {{}} }}", "match is found; algebraic data types"),
        (f"{VERSION}type List[A] {{ Nil }}\ndef @main() {{ 1f }}", "type is found; algebraic data types"),
        (f"{VERSION}def @main() {{ 1f }} def @main() {{ 2f }}", "two functions are called @main"),
        (f"{VERSION}def @a() {{ 1f }} def @b() {{ 2f }}", "holds the functions a, b; one called main"),
        (f"{VERSION}def @main(%x: float32, %x: float32) {{ %x }}", "two parameters are called %x"),
        (f"{VERSION}def @main(%x) {{ %x }}", "argument x has no type"),
        (f"{VERSION}def @main(%x: fn () -> float32) {{ %x }}", "argument x is no tensor"),
        (f"{VERSION}def @main(%x: Tensor[(-2), float32]) {{ %x }}", "negative size"),
        (f"{VERSION}def @main(%x: Tensor[(2), complex64]) {{ %x }}", "dtype complex64"),
        (f"{VERSION}def @main(%x: Tensor[(1, ?), float32]) {{ %x }}", "input x has the dynamic axis 1"),
        (f"{VERSION}def @main(%x: float32) -> Tensor[(2), float32] {{ %x }}", r"result of @main has shape \(\)"),
        (f"{VERSION}def @main(%x: float32) {{ nn.relu(%x, a=1, a=2) }}", "attribute a is given twice"),
        (f"{VERSION}add(1f, 1f)", "a module or a function is needed"),
        ("MZ\x00\x01 no text at all", "line 1"),
    ],
)
def test_texts_that_are_none(text: str, said: str) -> None:
    with pytest.raises((ModelFileError, GraphError), match=said):
        from_relay(text)


def test_conditions_and_uncovered_operators_are_listed_at_once() -> None:
    lines = ["%0 = invert(%x)", "%1 = invert(%0)", "%2 = fast_erf(nn.relu(%1))", "%3 = nn.relu(%x)"]
    result = "if (greater(sum(%3), 0f)) {\n    %2\n  } else {\n    %x\n  }"
    with pytest.raises(UnsupportedOperatorError) as error:
        from_relay(function(f"(%2, {result})", lines, x=(2, 3)))
    listed = (
        "invert ×2 (invert_0 in line 3, invert_1 in line 4); fast_erf ×1 (fast_erf_2 in line 5); if ×1 (if in line 7)"
    )
    assert f"3 operators not covered: {listed}" in str(error.value)


def test_recursion_is_refused() -> None:
    with pytest.raises(GraphError, match="@main calls itself"):
        from_relay(function("@main(%x)", x=(2, 3)))
    both = f"{VERSION}def @f(%x) {{ @g(%x) }} def @g(%x) {{ @f(%x) }} def @main(%x: {tensor((1,))}) {{ @f(%x) }}"
    with pytest.raises(GraphError, match="@f calls itself"):
        from_relay(both)


def test_long_chains_and_deep_nesting() -> None:
    """10,000 calls in a row, and more than Python nests calls in each other and in as many tuples: nothing recurses."""
    count, depth = 10_000, 3 * sys.getrecursionlimit()
    chain = [f"%{place} = negative(%{place - 1 if place else 'x'})" for place in range(count)]
    for text, operators in (
        (function(f"%{count - 1}", chain, x=(1,)), count),
        (function("negative(" * depth + "%x" + ")" * depth, x=(1,)), depth),
        (function("(" * depth + "%x" + ",)" * depth + ".0" * depth, x=(1,)), 0),
    ):
        start = time.monotonic()
        graph = from_relay(text)
        assert time.monotonic() - start < 60
        assert len(graph.operators) == operators


# Constants and parameters


def test_constants_of_the_metadata() -> None:
    weight, half = random(3), np.arange(3, dtype=np.float16)
    text = function("add(multiply(%x, meta[relay.Constant][0]), meta[relay.Constant][1])", x=(2, 3))
    found = one(text + metadata(weight, half), X)
    np.testing.assert_allclose(found, X * weight + half, rtol=1e-6)


def test_parameters_by_name() -> None:
    """The printer's own changes of names are undone; what no argument is called after is left alone."""
    text = function("multiply(add(%x, %w.0), %v0bias)", **{"x": (2, 3), "w.0": (3,), "v0bias": (3,)})
    values = {"w.0": random(3, seed=1), "0bias": random(3, seed=2), "unused": random(7)}
    expected = (X + values["w.0"]) * values["0bias"]
    for given in (values, parameters(values)):
        graph = from_relay(text, given)
        assert [symbol.name for symbol in graph.inputs] == ["x"]
        np.testing.assert_allclose(run(graph, X)[0], expected, rtol=1e-6)
        assert set(graph.parameters) == {"w.0", "v0bias"}


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"w": random(5, 3)}, r"parameter w is given with shape \(5, 3\); \(4, 3\) is needed"),
        ({"w": np.ones((4, 3), "int32")}, "parameter w is given as int32; float32 is needed"),
        ({"w": np.array(["a"])}, "parameter w is given as <U1"),
        ({"other": random(4, 3)}, "params names other, which no argument is called"),
        ({}, r"1 arguments are weights and have no value: w \(line 3, nn.dense\)"),
        (None, r"1 arguments are weights and have no value: w \(line 3, nn.dense\)"),
        ([random(4, 3)], "params is of type list"),
    ],
)
def test_parameters_that_do_not_fit(params: object, said: str) -> None:
    with pytest.raises(DataError, match=said):
        from_relay(function("nn.dense(%x, %w, units=4)", x=(2, 3), w=(4, 3)), params)  # type: ignore[arg-type]


def test_a_dynamic_batch_is_fixed() -> None:
    text = function("nn.relu(%x)", x="Tensor[(?, 3), float32]")
    assert from_relay(text, batch=5).outputs[0].shape == (5, 3)
    with pytest.raises(GraphError, match="batch is 0"):
        from_relay(text, batch=0)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "net.relay"
    path.write_text("\ufeff" + function("nn.dense(%x, %w, units=None)", x=(2, 3), w=(4, 3)), encoding="utf-8")
    with pytest.raises(DataError, match=r"w \(line 3, nn.dense\).*\.params file beside"):
        read_relay_file(path)
    weight = random(4, 3)
    (tmp_path / "net.params").write_bytes(parameters({"w": weight}))
    for graph in (read_relay_file(path), load_model(path)):
        np.testing.assert_allclose(run(graph, X)[0], X @ weight.T, rtol=1e-5)
    (tmp_path / "latin.relay").write_bytes(b'#[version = "0.0.5"]\ndef @main() { 1f } // \xe9')
    with pytest.raises(ModelFileError, match=r"latin.relay is no UTF-8 text"):
        read_relay_file(tmp_path / "latin.relay")
    with pytest.raises(ModelFileError, match="cannot be read"):
        read_relay_file(tmp_path / "absent.relay")
    assert mrt.from_relay is from_relay
