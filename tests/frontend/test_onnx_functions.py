"""Elementwise ONNX functions mean here what they mean in ONNX Runtime."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx_models import assert_agrees, operators_of, single

from mrt.errors import UnsupportedOperatorError
from mrt.frontend.onnx import from_onnx
from mrt.preparation import prepare

SHAPE = (2, 3, 40)
WIDE = {"x": np.linspace(-8, 8, 240, dtype=np.float32).reshape(SHAPE)}
POSITIVE = {"x": np.linspace(0.05, 8, 240, dtype=np.float32).reshape(SHAPE)}


@pytest.mark.parametrize("opset", [9, 13, 17, 21])
@pytest.mark.parametrize(
    ("op_type", "attributes", "record"),
    [
        ("Abs", {}, "abs"),
        ("Ceil", {}, "ceil"),
        ("Floor", {}, "floor"),
        ("Sign", {}, "sign"),
        ("Cos", {}, "cos"),
        ("Sin", {}, "sin"),
        ("Atan", {}, "arctan"),
        ("Asinh", {}, "arcsinh"),
        ("Sinh", {}, "sinh"),
        ("Cosh", {}, "cosh"),
        ("Erf", {}, "erf"),
        ("Exp", {}, "exp"),
        ("Softplus", {}, "softrelu"),
        ("Softsign", {}, "softsign"),
        ("HardSigmoid", {}, "hard_sigmoid"),
        ("HardSigmoid", {"alpha": 0.5, "beta": 0.1}, "hard_sigmoid"),
        ("Elu", {}, "LeakyReLU"),
        ("Elu", {"alpha": 0.3}, "LeakyReLU"),
        ("Selu", {}, "LeakyReLU"),
    ],
)
def test_functions_of_any_number(opset: int, op_type: str, attributes: dict[str, float], record: str) -> None:
    graph = assert_agrees(single(op_type, SHAPE, opset=opset, **attributes), WIDE)
    assert operators_of(graph) == [record]


@pytest.mark.parametrize("opset", [11, 21])
def test_rounding_of_ties(opset: int) -> None:
    ties = {"x": np.arange(-120, 120, dtype=np.float32).reshape(SHAPE) / 4}
    assert operators_of(assert_agrees(single("Round", SHAPE, opset=opset), ties)) == ["round_half_even"]


def test_remainders_of_floats() -> None:
    for divisor in (np.float32(1.7), np.float32([[[1.5]], [[-0.7]]])):
        graph = assert_agrees(single("Mod", SHAPE, {"d": divisor}, fmod=1), WIDE)
        assert ("_mod_scalar" in operators_of(graph)) == (divisor.size == 1)


@pytest.mark.parametrize("name", ["tan", "asin", "acos", "atanh", "acosh"])
def test_functions_of_a_domain(name: str) -> None:
    lowest = 1.0 if name == "acosh" else -0.99
    data = {"x": np.linspace(lowest, lowest + 1.98, math.prod(SHAPE), dtype=np.float32).reshape(SHAPE)}
    graph = assert_agrees(single(name.capitalize(), SHAPE), data)
    assert operators_of(graph) == [name.replace("a", "arc", 1) if name.startswith("a") else name]


@pytest.mark.parametrize("op_type", ["Log", "Sqrt", "Reciprocal"])
def test_functions_of_positive_numbers(op_type: str) -> None:
    graph = assert_agrees(single(op_type, SHAPE), POSITIVE)
    assert operators_of(graph) == [op_type.lower()]


@pytest.mark.parametrize(
    ("op_type", "opset", "attributes", "record"),
    [
        ("HardSwish", 14, {}, "hard_swish"),
        ("Mish", 18, {}, "mish"),
        ("Gelu", 20, {}, "LeakyReLU"),
        ("Gelu", 20, {"approximate": "tanh"}, "LeakyReLU"),
    ],
)
def test_functions_of_later_opsets(op_type: str, opset: int, attributes: dict[str, str], record: str) -> None:
    graph = assert_agrees(single(op_type, SHAPE, opset=opset, **attributes), WIDE)
    assert operators_of(graph) == [record]


def test_selu_of_other_constants() -> None:
    graph = assert_agrees(single("Selu", SHAPE, alpha=2.0, gamma=0.5), WIDE)
    assert operators_of(graph) == ["LeakyReLU", "_mul_scalar"]


@pytest.mark.parametrize(
    ("exponent", "feeds", "record"),
    [
        (2.0, WIDE, "square"),
        (3.0, WIDE, "_power_scalar"),
        (1.0, WIDE, "_copy"),
        (0.5, POSITIVE, "sqrt"),
        (-0.5, POSITIVE, "rsqrt"),
        (-1.0, POSITIVE, "reciprocal"),
        (1.7, POSITIVE, "_power_scalar"),
    ],
)
@pytest.mark.parametrize("shape", [(), (1,)])
def test_constant_powers(exponent: float, feeds: dict[str, np.ndarray], record: str, shape: tuple[int, ...]) -> None:
    graph = assert_agrees(single("Pow", SHAPE, {"p": np.full(shape, exponent, np.float32)}), feeds)
    assert operators_of(graph) == [record]


@pytest.mark.parametrize("shape", [(3,), (2, 1), (2, 1, 3), (2, 2, 3)])
def test_powers_that_vary(shape: tuple[int, ...]) -> None:
    exponents = np.resize(np.array([2, 0.5, 1, -1, 3.5], np.float32), shape)
    x = np.random.default_rng(3).uniform(0.1, 3, (2, 2, 3)).astype(np.float32)
    assert_agrees(single("Pow", (2, 2, 3), {"p": exponents}), {"x": x})


@pytest.mark.parametrize("base", [2.0, [0.5, 1.0, 3.0]])
def test_powers_of_constants(base: object) -> None:
    graph = assert_agrees(single("Pow", (2, 3), {"b": np.array(base, np.float32)}, inputs=["b", "x"]))
    assert operators_of(graph)[-1] == "exp"


def test_powers_without_integers_are_refused() -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"exponent is computed from the data; a constant, or exp\("):
        from_onnx(single("Pow", (2, 3), inputs=["x", "x"]))
    with pytest.raises(UnsupportedOperatorError, match=r"base is \[-1.0\]"):
        from_onnx(single("Pow", (2, 3), {"b": np.float32([-1])}, inputs=["b", "x"]))
    with pytest.raises(UnsupportedOperatorError, match="of 65 different numbers; at most 64"):
        from_onnx(single("Pow", (2, 65), {"p": np.arange(65, dtype=np.float32)}))


@pytest.mark.parametrize("opset", [12, 21])
@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("Celu", {}),
        ("Celu", {"alpha": 0.3}),
        ("Celu", {"alpha": 4.0}),
        ("ThresholdedRelu", {}),
        ("ThresholdedRelu", {"alpha": -0.5}),
        ("Shrink", {}),
        ("Shrink", {"lambd": 1.5, "bias": 0.75}),
        ("Shrink", {"lambd": 0.0, "bias": -1.0}),
    ],
)
def test_functions_made_of_several_operators(opset: int, op_type: str, attributes: dict[str, float]) -> None:
    """Preparation makes one table of each, since it is a function of one tensor."""
    graph = assert_agrees(single(op_type, SHAPE, opset=opset, **attributes), WIDE)
    assert operators_of(prepare(graph).graph) in (["elementwise_region"], ["LeakyReLU"])


def test_the_ends_of_a_threshold() -> None:
    feeds = {"x": np.array([-1.5, -0.75, -0.0, 0.0, 0.75, 1.5], np.float32)}
    assert_agrees(single("ThresholdedRelu", (6,), alpha=0.75), feeds)
    assert_agrees(single("Shrink", (6,), lambd=0.75, bias=0.5), feeds)


def test_attributes_that_make_no_function_of_these_kinds_are_refused() -> None:
    with pytest.raises(UnsupportedOperatorError, match="attribute lambd is -0.5; 0 or more is needed"):
        from_onnx(single("Shrink", (3, 2), lambd=-0.5))
    with pytest.raises(UnsupportedOperatorError, match="attribute alpha is -1.0; a positive number is needed"):
        from_onnx(single("Celu", (3, 2), alpha=-1.0))
