"""Gemm and MatMul of ONNX in every form, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx_models import OPSETS, assert_agrees, make_model, operators_of, single

from mrt.errors import GraphError, MRTError
from mrt.frontend.onnx import from_onnx

RNG = np.random.default_rng(4)


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.5, 2.0), (0.3, 0.0)])
@pytest.mark.parametrize("addend", [None, (), (1,), (5,), (1, 5), (3, 1), (3, 5), (1, 1)])
@pytest.mark.parametrize("computed", [False, True])
def test_gemm(
    trans_a: int, trans_b: int, alpha: float, beta: float, addend: tuple[int, ...] | None, computed: bool
) -> None:
    values = {"b": array(5, 4) if trans_b else array(4, 5)}
    if addend is not None:
        values["c"] = array(*addend)
    node = helper.make_node("Gemm", ["x", *values], ["y"], transA=trans_a, transB=trans_b, alpha=alpha, beta=beta)
    inputs = {"x": (4, 3) if trans_a else (3, 4)}
    if computed:
        model = make_model([node], {**inputs, **{name: value.shape for name, value in values.items()}})
    else:
        model = make_model([node], inputs, constants=values)
    records = operators_of(assert_agrees(model))
    assert ("dot" if computed else "FullyConnected") in records
    if computed:
        assert set(records) <= {"dot", "_mul_scalar", "broadcast_add"}
    if not computed and addend in (None, (), (1,), (5,), (1, 5), (1, 1)) and not trans_a:
        assert records == ["FullyConnected"]


@pytest.mark.parametrize("opset", OPSETS)
def test_gemm_of_every_opset(opset: int) -> None:
    assert_agrees(single("Gemm", (3, 4), {"b": array(4, 5), "c": array(5)}, opset))


def test_gemm_keeps_a_stored_weight_and_bias() -> None:
    graph = from_onnx(single("Gemm", (3, 4), {"weight": array(5, 4), "bias": array(5)}, transB=1))
    assert set(graph.parameters) == {"weight", "bias"}


def test_layers_that_share_a_weight_share_a_parameter() -> None:
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["g"]),
        helper.make_node("Gemm", ["g", "w"], ["h"]),
        helper.make_node("Gemm", ["h", "w"], ["i"], alpha=0.5),
        helper.make_node("Gemm", ["i", "w"], ["y"], alpha=0.5000001),
    ]
    graph = assert_agrees(make_model(nodes, {"x": (3, 4)}, constants={"w": array(4, 4)}))
    assert len(graph.parameters) == 3


MATRICES = [
    ((3, 4), (4, 5)),
    ((2, 3, 4), (4, 5)),
    ((2, 6, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 6, 3, 4), (2, 6, 4, 5)),
    ((2, 6, 3, 4), (6, 4, 5)),
    ((2, 1, 3, 4), (1, 6, 4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((4,), (4,)),
]


@pytest.mark.parametrize(("lhs", "rhs"), MATRICES)
@pytest.mark.parametrize("constant", [None, "a", "b"])
def test_matmul(lhs: tuple[int, ...], rhs: tuple[int, ...], constant: str | None) -> None:
    shapes = {"a": lhs, "b": rhs}
    constants = {constant: array(*shapes.pop(constant))} if constant else {}
    graph = assert_agrees(make_model([helper.make_node("MatMul", ["a", "b"], ["y"])], shapes, constants=constants))
    records = operators_of(graph)
    if constant == "b" and len(rhs) <= 2:
        assert "FullyConnected" in records
    if constant is None and len(lhs) == len(rhs) > 2 and lhs[:-2] == rhs[:-2]:
        assert records == ["batch_dot"]
    if constant != "b" and len(lhs) == len(rhs) == 2:
        assert records == ["dot"]


def test_matmul_of_shapes_that_do_not_fit() -> None:
    model = make_model([helper.make_node("MatMul", ["a", "b"], ["y"])], {"a": (2, 3), "b": (4, 2)})
    with pytest.raises(GraphError, match=r"y \(MatMul\): shapes \(2, 3\) and \(4, 2\) do not multiply"):
        from_onnx(model)


EQUATIONS = {
    "ij,jk->ik": ((2, 3), (3, 4)),
    "bij,bjk->bik": ((5, 2, 3), (5, 3, 4)),
    "bhqd,bhkd->bhqk": ((2, 3, 4, 5), (2, 3, 6, 5)),
    "bqhd,bkhd->bhqk": ((2, 4, 3, 5), (2, 6, 3, 5)),
    "ij,ij->": ((2, 3), (2, 3)),
    "ij,ij->ij": ((2, 3), (2, 3)),
    "i,j->ij": ((2,), (3,)),
    "ij->ji": ((2, 3),),
    "ij->i": ((2, 3),),
    "ij->": ((2, 3),),
    "ijk->kji": ((2, 3, 4),),
    "ba,ca": ((2, 3), (4, 3)),
    "...ij,...jk->...ik": ((5, 2, 3), (5, 3, 4)),
    "...ij,jk": ((5, 2, 3), (3, 4)),
    "b...,c...->bc...": ((2, 3), (4, 3)),
    "i...->...": ((2, 3, 4),),
    "ij,jk,kl->il": ((2, 3), (3, 4), (4, 5)),
    "ijk,j->ik": ((2, 3, 4), (3,)),
    "ab,cd->dbca": ((2, 3), (4, 5)),
    "bcd,ce->b": ((2, 3, 4), (3, 5)),
    "bn,anm,bm->ba": ((2, 3), (4, 3, 5), (2, 5)),
}


@pytest.mark.parametrize("equation", EQUATIONS)
@pytest.mark.parametrize("constant", [False, True])
def test_einsum(equation: str, constant: bool) -> None:
    shapes = {f"x{place}": shape for place, shape in enumerate(EQUATIONS[equation])}
    constants = {name: array(*shapes.pop(name)) for name in list(shapes)[1:]} if constant else {}
    node = helper.make_node("Einsum", [*shapes, *constants], ["y"], equation=equation)
    assert_agrees(make_model([node], shapes, constants=constants))


def test_einsum_where_an_axis_of_one_meets_a_longer_one() -> None:
    node = helper.make_node("Einsum", ["a", "b"], ["y"], equation="...ij,...jk->...ik")
    graph = from_onnx(make_model([node], {"a": (1, 2, 3), "b": (5, 3, 4)}))
    feeds = {"a": array(1, 2, 3), "b": array(5, 3, 4)}
    np.testing.assert_allclose(graph.evaluate(feeds)[0], feeds["a"] @ feeds["b"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "words"),
    [
        ("ij,jk->ik", "has 2 terms, 1 operands are given"),
        ("ijk->i", "does not fit"),
        ("i->i", "does not fit"),
        ("ij->ik", "that no term has"),
        ("ij->ii", "letters twice"),
        ("i1->i", "letters and one ellipsis are needed"),
    ],
)
def test_equations_that_mean_nothing_here(equation: str, words: str) -> None:
    with pytest.raises(MRTError, match=words):
        from_onnx(single("Einsum", (3, 3), equation=equation))


@pytest.mark.parametrize(
    "equation, shape", [("ii->i", (3, 3)), ("bii", (2, 3, 3)), ("...iaii->i...a", (2, 3, 4, 3, 3))]
)
def test_diagonals(equation: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    (found,) = from_onnx(single("Einsum", shape, equation=equation)).evaluate({"x": x})
    np.testing.assert_allclose(found, np.einsum(equation, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("length", [1, 5, 8])
def test_cumulated_products(exclusive: int, reverse: int, length: int) -> None:
    model = single("CumProd", (2, length), {"axis": np.int64(1)}, 26, exclusive=exclusive, reverse=reverse)
    x = np.random.default_rng(2).uniform(0.5, 2, (2, length))
    ordered = x[:, ::-1] if reverse else x
    if exclusive:
        ordered = np.concatenate([np.ones((2, 1)), ordered[:, :-1]], 1)
    wanted = ordered.cumprod(1)
    (found,) = from_onnx(model).evaluate({"x": x.astype(np.float32)})
    np.testing.assert_allclose(found, wanted[:, ::-1] if reverse else wanted, rtol=1e-5)
