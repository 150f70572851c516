"""The exported C as a whole: what its header tells, what its function refuses, names, sizes, the command."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from c_programs import SANITIZED, STRICT, Programs, compile_c, in_c, write
from exported import facts
from typer.testing import CliRunner

import mrt
from mrt.backend.te.registry import compute
from mrt.backend.te.stages import elementwise
from mrt.backend.tir.expressions import Tensor, constant
from mrt.cli import app
from mrt.errors import CompilationError, ConfigError, UnsupportedOperatorError
from mrt.export.c import sizes_in, to_c
from mrt.model import QuantizedModel, assemble
from mrt.symbol import Array, GraphBuilder, Operator, Symbol, TensorType, find_operator, operator
from mrt.symbol.interval import Interval
from mrt.symbol.operators.transform import Reshape
from tests.quantization.networks import chain, quantize_and_run


class Same(Operator):
    """What operators of a plug-in share here: they give what they take."""

    def infer(self, x: TensorType) -> TensorType:
        return x

    def evaluate(self, x: Array) -> Array:
        return x

    def bounds(self, x: Interval) -> Interval:
        return x


@operator("without_compute_of_test")
class WithoutCompute(Same):
    """TVM knows nothing of it."""


@operator("through_floats_of_test")
class ThroughFloats(Same):
    """Its compute goes through floats."""


@compute(ThroughFloats)
def through_floats(symbol: Symbol, data: Tensor) -> Tensor:
    half = constant(0.5, "float32")
    return elementwise(symbol, data, body=lambda x: (x.astype("float32") * half + half).astype(symbol.dtype))


def loaded(model: QuantizedModel, folder: Path) -> ctypes.CDLL:
    """The model's C as a shared object."""
    header, source, *_ = model.to_c(folder)
    assert (header.name, source.name) == ("model.h", "model.c")
    compile_c(*STRICT, "-O1", "-shared", "-fPIC", source, "-o", folder / "model.so")
    return ctypes.CDLL(str(folder / "model.so"))


def called(
    library: ctypes.CDLL, folder: Path, model: QuantizedModel, feeds: dict[str, Array]
) -> tuple[int, list[Array]]:
    """The status of model_run, and its outputs, which held 77 before."""
    outputs = [np.full(entry.shape, 77, entry.dtype) for entry in model.outputs]
    arrays = [*(np.ascontiguousarray(feeds[entry.name]) for entry in model.inputs), *outputs]
    return library.model_run(*map(pointer, (instance(folder / "model.h"), *arrays))), outputs


def instance(header: Path) -> Array:
    """Memory for one without states, of any content."""
    return np.full(max(sizes_in(header.read_text())[0], 1), 77, np.uint8)


def pointer(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def real(model: QuantizedModel) -> Array:
    return np.random.default_rng(1).standard_normal(model.inputs[0].shape).astype(np.float32)


def test_the_header_tells_what_integers_mean(model: QuantizedModel, tmp_path: Path) -> None:
    header = model.to_c(tmp_path)[0].read_text()
    for place, entry in (("input0", model.inputs[0]), ("output0", model.outputs[0])):
        told = re.search(
            rf"{place}: (\S+), (\w+)\[(.*)\], row by row, (-?\d+) to (-?\d+)\n.* zero point (-?\d+)\n", header
        )
        assert told is not None
        shape = ", ".join(map(str, entry.shape))
        stated = (entry.name, entry.dtype, shape, str(entry.lo), str(entry.hi), str(entry.zero_point))
        assert told.groups() == stated
        scales = re.findall(r"scale.* = (\d+)(?: / 2\^(\d+))?$", header[told.end() :].split("*\n")[0], re.MULTILINE)
        found = [Fraction(int(n), 2 ** int(k or 0)) for n, k in scales]
        assert found == [Fraction(scale) for scale in np.ravel(entry.scale).tolist()]
        assert f"#define MODEL_{place.upper()}_SIZE {np.prod(entry.shape)}\n" in header


def test_a_shared_object_gives_the_integers_and_the_digest(model: QuantizedModel, tmp_path: Path) -> None:
    library = loaded(model, tmp_path)
    feeds = model.quantize_inputs(real(model))
    status, found = called(library, tmp_path, model, feeds)
    assert status == 0
    for a, b in zip(found, model.graph.evaluate(feeds), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (ctypes.c_char * 65).in_dll(library, "model_digest").value == model.digest.encode()


def test_an_input_outside_of_its_range_is_refused(tmp_path: Path) -> None:
    """By its number; bounds hold within the ranges only. No output is written."""
    builder = GraphBuilder()
    x, y = builder.input("x", TensorType((1, 4), "int8")), builder.input("y", TensorType((1, 4), "int8"))
    graph = builder.graph([builder.apply(find_operator("elemwise_add")(), [x, y])])
    inputs = facts(graph, {"x": (-128, 100), "y": (-3, 127)})
    (file,) = write(in_c(graph, inputs), tmp_path)
    compile_c(*STRICT, "-shared", "-fPIC", file, "-o", tmp_path / "model.so")
    library = ctypes.CDLL(str(tmp_path / "model.so"))
    for a, b, expected in (
        ([-128, 0, 0, 100], [-3, 0, 0, 127], 0),
        ([0, 0, 101, 0], [0] * 4, 1),
        ([0] * 4, [-4] * 4, 2),
    ):
        given, result = [np.array(values, np.int8) for values in (a, b)], np.full(4, 77, np.int32)
        status = library.model_run(*map(pointer, (instance(tmp_path / "model.h"), *given, result)))
        assert status == expected
        sums = [p + q for p, q in zip(a, b, strict=True)]
        assert result.tolist() == (sums if expected == 0 else [77] * 4)


def test_outputs_of_every_kind(tmp_path: Path) -> None:
    """An input, a parameter, one that stands twice, a reshape, one that others read; inputs that nothing reads."""
    builder = GraphBuilder()
    x, unread = builder.input("x", TensorType((2, 3), "int8")), builder.input("unread", TensorType((2,), "bool"))
    like = builder.input("like", TensorType((1, 2), "int16"))
    parameter = builder.parameter("p", np.array([[True, False, True]]))
    flat = builder.apply(Reshape((6,)), [x])
    turned = builder.apply(find_operator("transpose")(), [builder.apply(Reshape((3, 2)), [flat])])
    short = builder.apply(find_operator("slice_like")(), [turned, like])
    positive = builder.apply(find_operator("relu")(), [turned])
    again = builder.apply(find_operator("negative")(), [positive])
    graph = builder.graph([x, parameter, positive, again, positive, flat, short, unread])
    programs = Programs.of([(graph, facts(graph))], tmp_path, *SANITIZED)
    random = np.random.default_rng(0)
    x_values = random.integers(-127, 128, (2, 3)).astype(np.int8)
    feeds = {"x": x_values, "unread": np.array([True, False]), "like": np.zeros((1, 2), np.int16)}
    (found,) = programs.run(0, [feeds])
    moved = x_values.reshape(3, 2).T
    expected = [x_values, [[1, 0, 1]], np.maximum(moved, 0), -np.maximum(moved, 0), np.maximum(moved, 0)]
    for a, b in zip(found, [*expected, x_values.reshape(6), moved[:1, :2], [1, 0]], strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_reshape_costs_nothing(tmp_path: Path) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 4, 6), "int8"))
    turned = builder.apply(find_operator("transpose")(), [x])
    flat = builder.apply(find_operator("Flatten")(), [builder.apply(Reshape((2, 12)), [turned])])
    graph = builder.graph([builder.apply(find_operator("sum")(axis=(1,)), [flat])])
    source = in_c(graph, facts(graph))
    assert source.workspace_bytes == 24 and "reshape" not in source.files["model.c"]
    Programs.of([(graph, facts(graph))], tmp_path).assert_same(
        0, [{"x": np.arange(24, dtype=np.int8).reshape(1, 4, 6)}]
    )


def test_names_of_symbols_are_harmless(tmp_path: Path) -> None:
    """Whatever a symbol is called, it stands in comments only."""
    builder = GraphBuilder()
    names = ["*/ int", "/* ", "a\nb\\", "??/\n", "é\u2028", "#define int", '"', "/" * 3, "x" * 5000]
    made = [builder.input(names[0], TensorType((4,), "int8"))]
    for name in names[1:-1]:
        made.append(builder.apply(find_operator("_plus_scalar")(scalar=1.0), [made[-1]], name))
    table = builder.parameter(names[-1], np.arange(4, dtype=np.int32))
    graph = builder.graph([builder.apply(find_operator("elemwise_add")(), [made[-1], table], "*/")])
    programs = Programs.of([(graph, facts(graph))], tmp_path, "-Wcomment", "-Wtrigraphs")
    programs.assert_same(0, [{names[0]: np.array([-128, -1, 0, 127], np.int8)}])


def test_everything_that_cannot_be_written_is_named() -> None:
    builder = GraphBuilder()
    x, y = builder.input("x", TensorType((4,), "int8")), builder.input("y", TensorType((4,)))
    for index in range(4):
        x = builder.apply(WithoutCompute(), [x], f"lacking{index}")
    graph = builder.graph([x, builder.apply(find_operator("sigmoid")(), [y], "gate")])
    with pytest.raises(UnsupportedOperatorError) as caught:
        in_c(graph, ())
    assert "without_compute_of_test (4: lacking0, lacking1, lacking2, …)" in str(caught.value)
    assert "sigmoid of float32 (1: gate)" in str(caught.value) and "null of float32 (1: y)" in str(caught.value)


def test_a_kernel_with_floats_is_refused() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((4,), "int8"))
    graph = builder.graph([builder.apply(ThroughFloats(), [x], "halved")])
    with pytest.raises(CompilationError, match=r"halved \(through_floats_of_test\): .*(float32|FloatImm)"):
        in_c(graph, facts(graph))


@pytest.mark.parametrize("name", ["", "2d", "a-b", "é", "a b", "_x"])
def test_a_name_that_begins_no_identifier_is_refused(name: str, model: QuantizedModel, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="letters, digits"):
        model.to_c(tmp_path, name=name)
    assert not list(tmp_path.iterdir())


def test_keywords_begin_names(model: QuantizedModel, tmp_path: Path) -> None:
    header, source, *_ = model.to_c(tmp_path, name="int")
    assert (header.name, source.name) == ("int.h", "int.c")
    compile_c(*STRICT, "-c", source, "-o", tmp_path / "int.o")


def test_the_same_model_gives_the_same_bytes(model: QuantizedModel, tmp_path: Path) -> None:
    first, second = (model.to_c(tmp_path / folder) for folder in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_another_batch(model: QuantizedModel, tmp_path: Path) -> None:
    sized = model.rebatched(3)
    _, source, *_ = model.to_c(tmp_path, batch=3)
    assert source.read_text() == to_c(sized.graph, sized.inputs, sized.outputs, model.digest).files["model.c"]
    feeds = model.quantize_inputs(real(sized))
    Programs.of([(sized.graph, sized.inputs)], tmp_path).assert_same(0, [feeds])
    baked = chain((2, 6), (Reshape((6, 2)), []))
    integer = quantize_and_run(baked, [{"x": np.ones((2, 6), np.float32)}]).integer
    with pytest.raises(mrt.MRTError, match="s0 "):
        assemble(integer, None, {}).to_c(tmp_path / "none", batch=4)
    assert not (tmp_path / "none").exists()


def test_equal_parameters_are_one(tmp_path: Path) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2, 3), "int32"))
    y = x
    for index, shape in enumerate([(3,), (1, 3), (3,)]):
        y = builder.apply(
            find_operator("broadcast_maximum")(),
            [y, builder.parameter(f"p{index}", np.arange(3, dtype=np.int32).reshape(shape))],
        )
    graph = builder.graph([y])
    assert in_c(graph, facts(graph)).parameter_bytes == 12


def test_stated_sizes_are_those_of_the_object(model: QuantizedModel, tmp_path: Path) -> None:
    if shutil.which("size") is None:
        pytest.skip("size is absent: install binutils")
    header, source, *_ = model.to_c(tmp_path)
    source.write_text(source.read_text() + "model_instance an_instance;\n")
    compile_c(*STRICT, "-Os", "-c", source, "-o", tmp_path / "model.o")
    done = subprocess.run(["size", "-A", tmp_path / "model.o"], capture_output=True, text=True, check=True)
    sections = dict(re.findall(r"^(\.\w+)\S*\s+(\d+)", done.stdout, re.MULTILINE))
    ram, rom = sizes_in(header.read_text())
    assert ram > 0 and int(sections[".bss"]) == ram and int(sections.get(".data", 0)) == 0
    parameters = sum(value.nbytes for value in model.graph.parameters.values())
    assert 0 < rom <= parameters and rom <= int(sections[".rodata"])


def test_the_command(model: QuantizedModel, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    model.save(saved)
    run = CliRunner().invoke(app, ["export", str(saved), "--format", "c"])
    assert run.exit_code == 0, run.output
    ram, rom = sizes_in((saved / "c" / "model.h").read_text())
    assert f"{ram} bytes of RAM" in run.stdout and f"{rom} bytes of ROM" in run.stdout
    assert model.digest in run.stdout and model.digest in (saved / "c" / "model.c").read_text()
    run = CliRunner().invoke(
        app, ["export", str(saved), "--format", "c", "--output", str(tmp_path / "d"), "--batch", "2"]
    )
    assert run.exit_code == 0 and "[2, 2, 5, 5]" in (tmp_path / "d" / "model.h").read_text()
    (tmp_path / "file").write_text("")
    run = CliRunner().invoke(app, ["export", str(saved), "--format", "c", "--output", str(tmp_path / "file")])
    assert run.exit_code == 1 and run.stderr.startswith("error: ") and run.stderr.count("\n") == 1
