"""What fuzzing found, each as the smallest graph or file that shows it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from mrt.backend import TvmRunner
from mrt.certificate.certificate import derive
from mrt.config import NpzDataset
from mrt.datasets import load_dataset
from mrt.errors import DataError, QuantizationError
from mrt.symbol import GraphBuilder, Interval, Symbol, TensorType, find_operator
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.interval import add, exact_array, multiply, subtract, total
from tests.export.c_programs import Programs
from tests.export.exported import facts

LOWEST, HIGHEST = -(2**31), 2**31 - 1


def test_bounds_of_a_tensor_without_axes_are_arrays_beyond_64_bits_too() -> None:
    """NumPy makes plain Python integers of arithmetic on those in arrays without axes."""
    large, one = np.array(2**62), np.array(1)
    for found, expected in (
        (add(large, large), 2**63),
        (subtract(large, -large), 2**63),
        (multiply(large, large), 2**124),
        (add(np.array(2**70, object), one), 2**70 + 1),
        (total(np.array([2**62] * 5), 0), 5 * 2**62),
    ):
        assert isinstance(found, np.ndarray)
        assert found.shape == ()
        assert int(found) == expected
        assert int(exact_array(found.item())) == expected


@pytest.mark.parametrize("op", ["elemwise_mul", "square"])
def test_a_product_without_axes_is_refused_by_its_bits(op: str) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((), "int32"))
    inputs = [x] if op == "square" else [x, x]
    graph = builder.graph([builder.apply(find_operator(op)(), inputs, "y")])
    with pytest.raises(QuantizationError, match="y .* needs 64 bits, 32 are allowed"):
        derive(graph, {"x": Interval.of(LOWEST, HIGHEST, ())})


def test_limits_at_the_ends_of_a_dtype_make_c_that_no_compiler_warns_of(tmp_path: Path) -> None:
    """gcc warns by -Wextra of a byte that is compared with 127."""
    graphs, feeds = [], []
    for dtype in ("int8", "uint8", "int16", "int32"):
        lo, hi = DTYPE_RANGES[dtype]
        builder = GraphBuilder()
        x = builder.input("x", TensorType((3,), dtype))
        made = [
            builder.apply(find_operator(op)(scalar=float(end)), [x])
            for op in ("_maximum_scalar", "_minimum_scalar")
            for end in (lo, hi)
        ]
        made += [builder.apply(find_operator("clip")(a_min=float(a), a_max=float(a)), [x]) for a in (lo, hi)]
        graphs.append(builder.graph(made))
        feeds.append({"x": np.array([lo, 0, hi], dtype)})
    programs = Programs.of([(graph, facts(graph)) for graph in graphs], tmp_path)
    for place, fed in enumerate(feeds):
        lo, hi = fed["x"].min(), fed["x"].max()
        ((*found,),) = programs.run(place, [fed])
        expected = [fed["x"], [hi] * 3, [lo] * 3, fed["x"], [lo] * 3, [hi] * 3]
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_single_number_is_looked_up_in_a_table() -> None:
    """A tensor without axes, and a table that has one."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((), "int8"))
    table = builder.parameter("table", np.arange(256, dtype=np.int16) * 3)
    graph = builder.graph([builder.apply(find_operator("table_lookup")(offset=128), [x, table])])
    (found,) = TvmRunner().prepare(graph)({"x": np.array(5, np.int8)})
    assert found == 133 * 3


@pytest.mark.parametrize("damage", ["compression", "encryption", "character", "brackets"])
def test_a_damaged_npz_is_one_error(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, x=np.ones((4, 3), np.float32))
    content = bytearray(path.read_bytes())
    central = content.index(b"PK\x01\x02")
    if damage == "compression":
        content[8] = content[central + 10] = 200
    elif damage == "encryption":
        content[6] |= 1
        content[central + 8] |= 1
    path.write_bytes(content)
    if damage in ("character", "brackets"):
        with zipfile.ZipFile(path) as archive:
            array = archive.read("x.npy")
        broken = {"character": b"(4, 3\x7f\x7f\x7f}", "brackets": b"(4, ((((("}[damage]
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", array.replace(b"(4, 3), }", broken))
    with pytest.raises(DataError, match=r"data\.test .*no readable \.npz file"):
        load_dataset(NpzDataset(npz=path, x="x"), {"x": TensorType((1, 3))}, "data.test")


def test_the_remainder_behind_a_layer_has_no_sign() -> None:
    """LLVM 22 lost the comparison of a remainder with 0 in such code, where AVX512-VNNI sums."""
    random, shape = np.random.default_rng(0), (4, 5, 3, 5, 1)
    builder = GraphBuilder()
    x = builder.input("x", TensorType(shape, "int16"))

    def apply(name: str, *inputs: Symbol, **attributes: object) -> Symbol:
        return builder.apply(find_operator(name)(**attributes), list(inputs))

    def parameter(*lengths: int, dtype: str, lo: int, hi: int) -> Symbol:
        return builder.parameter("p", random.integers(lo, hi, lengths).astype(dtype))

    weight = parameter(5, 5, 1, 1, 1, dtype="int8", lo=-128, hi=128)
    sums = apply("Convolution", x, weight, kernel=(1, 1, 1), num_filter=5, no_bias=True)
    shifted = apply("right_shift", sums, parameter(1, 5, 1, 1, 1, dtype="int8", lo=0, hi=12))
    biased = apply("broadcast_add", shifted, parameter(1, 5, 1, 1, 1, dtype="int16", lo=-99, hi=99))
    layer = apply("Cast", apply("clip", biased, a_min=-127.0, a_max=127.0), dtype="int8")
    divisor = apply("clip", builder.input("z", TensorType(shape, "int8")), a_min=127.0, a_max=127.0)
    graph = builder.graph([apply("floor_mod", apply("elemwise_add", layer, x), divisor)])
    run = TvmRunner().prepare(graph)
    for low, high in ((-29425, -29424), (-29425, 32768), (-128, 128)):
        feeds = {"x": random.integers(low, high, shape).astype(np.int16), "z": np.zeros(shape, np.int8)}
        np.testing.assert_array_equal(run(feeds)[0], graph.evaluate(feeds)[0])


@pytest.mark.parametrize("is_ascend", [True, False])
@pytest.mark.parametrize("ret_typ", ["value", "indices"])
def test_the_first_of_bools_are_found(ret_typ: str, is_ascend: bool) -> None:
    """TVM has no least bool."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((4, 7, 3), "bool"))
    operator = find_operator("topk")(axis=1, k=5, ret_typ=ret_typ, is_ascend=is_ascend)
    graph = builder.graph([builder.apply(operator, [x])])
    feeds = {"x": np.random.default_rng(0).integers(0, 2, (4, 7, 3)).astype(bool)}
    np.testing.assert_array_equal(TvmRunner().prepare(graph)(feeds)[0], graph.evaluate(feeds)[0])
