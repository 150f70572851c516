"""Compiled modules: batches of any number, quantization at the border, saving, loading, what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from mrt.backend import build_module, compile_model
from mrt.backend.build import compile_linkable
from mrt.backend.link.kernel_objects import KernelObjects, object_compiler
from mrt.backend.machine import Machine
from mrt.compilation import TargetConfig
from mrt.errors import CompilationError, DataError, ModelFileError
from mrt.module_record import Provenance, Versions
from mrt.runtime import Metadata, Module, load_module
from mrt.runtime.large_pages import LARGE, ask_for_large_pages
from mrt.symbol import Graph, GraphBuilder, TensorType, find_operator
from mrt.symbol.quantized_tensor import TensorQuantization

DIGEST = "0123abcd" * 8


def op(name: str, **attributes):
    return find_operator(name)(**attributes)


def integer_graph(batch: int) -> Graph:
    """Two inputs, two outputs."""
    builder = GraphBuilder()
    a = builder.input("a", TensorType((batch, 4), "int8"))
    b = builder.input("b", TensorType((batch, 6), "uint8"))
    weight = builder.parameter("weight", np.arange(-10, 14, dtype=np.int8).reshape(4, 6))
    mixed = builder.apply(op("FullyConnected", num_hidden=4, no_bias=True), [b, weight], "mixed")
    return builder.graph([builder.apply(op("elemwise_add"), [mixed, a], "sum"), mixed])


def facts(batch: int) -> tuple[tuple[TensorQuantization, ...], tuple[TensorQuantization, ...]]:
    inputs = (
        TensorQuantization("a", (batch, 4), "int8", 0.5, 0, -127, 127),
        TensorQuantization("b", (batch, 6), "uint8", 0.25, 3, 0, 200),
    )
    outputs = (
        TensorQuantization("sum", (batch, 4), "int32", [[0.5, 1.0, 2.0, 0.1]], 0, -(2**31), 2**31 - 1),
        TensorQuantization("mixed", (batch, 4), "int32", 0.01, 7, -(2**31), 2**31 - 1),
    )
    return inputs, outputs


def tail(batch: int) -> Graph:
    builder = GraphBuilder()
    a, b = (builder.input(name, TensorType((batch, 4))) for name in ("sum", "mixed"))
    return builder.graph([builder.apply(op("softmax"), [builder.apply(op("elemwise_add"), [a, b])])])


@pytest.fixture(scope="module")
def plain() -> Module:
    return compile_model(integer_graph(3), *facts(3), None, DIGEST)


@pytest.fixture(scope="module")
def side_by_side() -> Module:
    """With as many cores as it asks for, whatever this machine has."""
    made = compile_model(integer_graph(3), *facts(3), None, DIGEST, {"threads": 1}, workers=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mrt.runtime.device.cores", lambda: 3)
        made.run_integer(integers(1))
    return made


@pytest.fixture(scope="module")
def with_tail() -> Module:
    return compile_model(integer_graph(3), *facts(3), tail(3), DIGEST)


def integers(count: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(count)
    return {
        "a": random.integers(-127, 128, (count, 4)).astype(np.int8),
        "b": random.integers(0, 201, (count, 6)).astype(np.uint8),
    }


def reals(count: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(count)
    return {"a": random.standard_normal((count, 4)) * 30, "b": random.random((count, 6)).astype(np.float32) * 60}


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 9, 10])
def test_any_number_of_samples_gives_the_same_integers(plain: Module, count: int) -> None:
    fed = integers(count)
    expected = integer_graph(count).evaluate(fed) if count else [np.zeros((0, 4), np.int32)] * 2
    for found, wanted in zip(plain.run_integer(fed), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_what_fills_a_batch_is_as_proven_as_its_samples(count: int) -> None:
    """No processor divides by the zeros that samples may not hold."""
    builder = GraphBuilder()
    x, d = (builder.input(name, TensorType((2, 5), "int8")) for name in ("x", "d"))
    graph = builder.graph([builder.apply(op("floor_divide"), [x, d], "quotient")])
    entries = [
        TensorQuantization("x", x.shape, "int8", 1.0, 0, -128, -3),
        TensorQuantization("d", d.shape, "int8", 1.0, 0, 2, 127, is_given=True),
    ]
    outputs = [TensorQuantization("quotient", x.shape, "int32", 1.0, 0, -64, -1)]
    module = compile_model(graph, entries, outputs, None, DIGEST)
    rng = np.random.default_rng(count)
    feeds = {e.name: rng.integers(e.lo, e.hi, (count, 5), endpoint=True).astype("int8") for e in entries}
    expected = feeds["x"].astype(int) // feeds["d"]
    np.testing.assert_array_equal(module.run_integer(feeds), expected)
    np.testing.assert_array_equal(module({**feeds, "x": feeds["x"].astype(np.float32)}), expected)


def test_without_a_linker_a_call_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = compile_model(integer_graph(3), *facts(3), None, DIGEST)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    for use in (lambda: made.run_integer(integers(1)), lambda: made.save(tmp_path / "model.so")):
        with pytest.raises(CompilationError, match="cannot be linked"):
            use()
    assert list(tmp_path.iterdir()) == []


def test_where_code_may_not_be_executed_a_call_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    made = compile_model(integer_graph(3), *facts(3), None, DIGEST)

    def refused(path: str) -> None:
        raise RuntimeError(f"{path}: failed to map segment from shared object")

    monkeypatch.setattr("tvm.runtime.load_module", refused)
    with pytest.raises(CompilationError, match=r"failed to map segment from shared object; .* TMPDIR"):
        made.run_integer(integers(1))


@pytest.mark.parametrize("count", [0, 2, 4, 7, 12, 13])
def test_cores_that_take_samples_give_the_same_integers(side_by_side: Module, count: int) -> None:
    """Also where there are fewer calls than workers, and where workers have different numbers of them."""
    fed = integers(count)
    expected = integer_graph(count).evaluate(fed) if count else [np.zeros((0, 4), np.int32)] * 2
    for _ in range(2):
        for found, wanted in zip(side_by_side.run_integer(fed), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_call_quantizes_runs_and_dequantizes(plain: Module, with_tail: Module, count: int) -> None:
    """The oracle rounds the float32 quotient in fractions, and evaluates the graphs."""
    real = reals(count)
    fed = {
        entry.name: np.array(
            [
                [
                    min(
                        max(
                            round(Fraction(float(np.float32(v) / np.float32(entry.scale)))) + entry.zero_point, entry.lo
                        ),
                        entry.hi,
                    )
                    for v in row
                ]
                for row in real[entry.name]
            ],
            entry.dtype,
        )
        for entry in facts(count)[0]
    }
    integer = integer_graph(count).evaluate(fed)
    wanted = [
        (entry.scale * (q.astype(np.float64) - entry.zero_point)).astype(np.float32)
        for entry, q in zip(facts(count)[1], integer, strict=True)
    ]
    for found, value in zip(plain(real), wanted, strict=True):
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, value)
    after = with_tail(real)
    assert isinstance(after, np.ndarray)
    (softmax,) = tail(count).evaluate({"sum": wanted[0], "mixed": wanted[1]})
    np.testing.assert_allclose(after, softmax, rtol=1e-5, atol=1e-6)


def test_a_module_says_what_it_is(with_tail: Module) -> None:
    assert (with_tail.batch, with_tail.digest) == (3, DIGEST)
    assert [entry.name for entry in with_tail.inputs] == ["a", "b"]
    assert [entry.to_json() for entry in with_tail.outputs] == [entry.to_json() for entry in facts(3)[1]]


def test_one_input_and_one_output_come_without_a_mapping_or_list() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2, 3), "int8"))
    graph = builder.graph([builder.apply(op("relu"), [x], "y")])
    entries = [TensorQuantization(name, (2, 3), "int8", 0.5, 0, -127, 127) for name in ("x", "y")]
    module = compile_model(graph, entries[:1], entries[1:], None, DIGEST)
    x = np.array([[-1.0, 0.25, 0.75]])
    assert module(x).tolist() == [[0.0, 0.0, 1.0]]
    assert module({"x": x}).tolist() == [[0.0, 0.0, 1.0]]
    assert module.run_integer(np.array([[-5, 0, 7]], np.int8)).tolist() == [[0, 0, 7]]


def test_inputs_that_do_not_fit_are_named(plain: Module) -> None:
    good = reals(2)
    with pytest.raises(DataError, match=r"\['a', 'b'\] are needed"):
        plain({"a": good["a"]})
    with pytest.raises(DataError, match="one array"):
        plain(good["a"])
    with pytest.raises(DataError, match=r"b has shape \(2, 5\)"):
        plain({**good, "b": good["b"][:, :5]})
    with pytest.raises(DataError, match="a holds NaN"):
        plain({**good, "a": np.full((2, 4), np.nan)})
    with pytest.raises(DataError, match="a is complex"):
        plain({**good, "a": good["a"].astype(complex)})
    with pytest.raises(DataError, match="different numbers of samples"):
        plain({**good, "a": good["a"][:1]})
    with pytest.raises(DataError, match="a is int32; int8 is needed"):
        plain.run_integer({**integers(2), "a": np.zeros((2, 4), np.int32)})
    with pytest.raises(DataError, match=r"b holds \[0, 201\]; values in \[0, 200\]"):
        plain.run_integer({**integers(2), "b": np.array([[0] * 6, [201] * 6], np.uint8)})


@pytest.mark.parametrize(
    "arranged", [np.ascontiguousarray, np.asfortranarray, lambda x: np.repeat(x, 2, axis=1)[:, ::2]]
)
@pytest.mark.parametrize("rest", [0.0, np.inf, -np.inf])
def test_one_nan_anywhere_is_refused(rest: float, arranged: Callable[[np.ndarray], np.ndarray]) -> None:
    entry = TensorQuantization("a", (3, 35), "int8", 1.0, 0, -127, 127)
    whole = np.full((3, 35), rest, np.float32)
    np.testing.assert_array_equal(entry.real(arranged(whole)), whole)
    for place in range(whole.size):
        x = whole.copy()
        x.flat[place] = np.nan
        with pytest.raises(DataError, match="a holds NaN"):
            entry.real(arranged(x))


def test_infinities_saturate(plain: Module) -> None:
    entry = plain.inputs[0]
    assert entry.quantize(np.array([[np.inf, -np.inf, 1e30, -1e300]])).tolist() == [[127, -127, 127, -127]]


def test_facts_that_do_not_fit_the_graph_are_refused() -> None:
    inputs, outputs = facts(3)
    with pytest.raises(CompilationError, match="inputs"):
        compile_model(integer_graph(2), inputs, outputs, None, DIGEST)
    with pytest.raises(CompilationError, match="post-processing"):
        compile_model(integer_graph(3), inputs, outputs, tail(2), DIGEST)
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2, 3), "int8"))
    graph = builder.graph([builder.apply(op("max", axis=(0,), keepdims=True), [x], "y")])
    entries = [TensorQuantization(s.name, s.shape, s.dtype, 1.0, 0, -127, 127) for s in (x, *graph.outputs)]
    with pytest.raises(CompilationError, match="axis 0 is not the same batch"):
        compile_model(graph, entries[:1], entries[1:], None, DIGEST)


def test_a_saved_module_is_loaded_whole(with_tail: Module, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.so"
    with_tail.save(path)
    assert sorted(os.listdir(tmp_path)) == ["model.so", "model.so.json"]
    loaded = load_module(path)
    assert capfd.readouterr() == ("", "")
    assert (loaded.batch, loaded.digest) == (3, DIGEST)
    np.testing.assert_array_equal(loaded(reals(5)), with_tail(reals(5)))
    for a, b in zip(loaded.run_integer(integers(5)), with_tail.run_integer(integers(5)), strict=True):
        np.testing.assert_array_equal(a, b)
    loaded.save(tmp_path / "again.so")
    np.testing.assert_array_equal(load_module(tmp_path / "again.so")(reals(5)), with_tail(reals(5)))
    assert capfd.readouterr() == ("", "")


FRESH = """
import hashlib, sys, numpy as np
from mrt.runtime import load_module
module = load_module("model.so")
a = (np.arange(40) * 7 % 255 - 127).astype(np.int8).reshape(10, 4)
b = (np.arange(60) * 11 % 201).astype(np.uint8).reshape(10, 6)
outputs = module.run_integer({"a": a, "b": b})
print(hashlib.sha256(b"".join(y.tobytes() for y in outputs)).hexdigest())
print([name for name in sys.modules if name.startswith(("mrt.backend", "mrt.quantization", "expansions"))])
"""


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_fresh_process_needs_the_file_and_its_record_only(plain: Module, tmp_path: Path, threads: str) -> None:
    plain.save(tmp_path / "model.so")
    root = str(Path(__file__).parents[1])
    environment = {**os.environ, "TVM_NUM_THREADS": threads, "TVM_BIND_THREADS": "0", "PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "-c", FRESH], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    a = (np.arange(40) * 7 % 255 - 127).astype(np.int8).reshape(10, 4)
    b = (np.arange(60) * 11 % 201).astype(np.uint8).reshape(10, 6)
    expected = integer_graph(10).evaluate({"a": a, "b": b})
    digest = hashlib.sha256(b"".join(y.tobytes() for y in expected)).hexdigest()
    assert done.stdout.splitlines() == [digest, "[]"]


def test_saving_replaces_the_file_or_leaves_it(plain: Module, tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    path.write_text("old")
    with pytest.raises(ModelFileError, match=r"cannot write .*missing"):
        plain.save(tmp_path / "missing" / "model.so")
    with pytest.raises(ModelFileError, match=r"cannot write .*: Is a directory"):
        plain.save(tmp_path)
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["model.so"])
    plain.save(path)
    assert load_module(path).digest == DIGEST


def test_a_module_in_the_place_of_a_loaded_one_is_the_new_one(plain: Module, tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    plain.save(path)
    former = load_module(path)
    compile_model(integer_graph(2), *facts(2), None, DIGEST[::-1]).save(path)
    new = load_module(path)
    assert (former.batch, new.batch) == (3, 2)
    assert (former.digest, new.digest, load_module(path).digest) == (DIGEST, DIGEST[::-1], DIGEST[::-1])


def test_files_that_are_no_modules_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="absent.so: No such file"):
        load_module(tmp_path / "absent.so")
    text = tmp_path / "text.so"
    text.write_text("no library")
    with pytest.raises(ModelFileError, match=r"text\.so is no module that MRT compiled") as raised:
        load_module(text, recorded=False)
    assert "\n" not in str(raised.value)


def test_a_module_that_was_cut_short_is_named(plain: Module, tmp_path: Path) -> None:
    plain.save(tmp_path / "model.so")
    whole = (tmp_path / "model.so").read_bytes()
    for length in (0, 3, 40, 64, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.so").write_bytes(whole[:length])
        with pytest.raises(ModelFileError, match=r"cut\.so is no module"):
            load_module(tmp_path / "cut.so", recorded=False)


def test_a_library_of_something_else_is_named(tmp_path: Path) -> None:
    graph = integer_graph(1)
    machine = Machine.of()
    objects = KernelObjects()
    compile_linkable(build_module(graph), machine, object_compiler(machine, objects), objects).link(
        tmp_path / "other.so"
    )
    with pytest.raises(ModelFileError, match=r"other\.so is no module"):
        load_module(tmp_path / "other.so", recorded=False)


def test_metadata_of_another_version_is_refused() -> None:
    versions = Versions(mrt="0", tvm="0", llvm="0")
    made_from = Provenance(model=DIGEST, target=TargetConfig(features=("avx2",)), versions=versions, batch=3, workers=1)
    metadata = Metadata(made_from, *facts(3))
    assert Metadata.from_json(metadata.to_json()).made_from == made_from
    assert Metadata.from_json(metadata.to_json()).to_json() == metadata.to_json()
    data = json.loads(metadata.to_json())
    with pytest.raises(ModelFileError, match="format_version 1; 6 is needed; compile it again"):
        Metadata.from_json(json.dumps({**data, "format_version": 1}))
    with pytest.raises(ModelFileError, match="malformed: model is "):
        Metadata.from_json(json.dumps({**data, "made_from": {**data["made_from"], "model": "x"}}))
    del data["inputs"]
    with pytest.raises(ModelFileError, match="inputs"):
        Metadata.from_json(json.dumps(data))
    with pytest.raises(ModelFileError, match="malformed"):
        Metadata.from_json("[]")


def test_scales_per_channel_and_facts_survive_json() -> None:
    entry = TensorQuantization(
        "x", (1, 3, 2, 2), "int16", np.array([0.1, 1 / 3, 2e-8]).reshape(1, 3, 1, 1), -5, -99, 99
    )
    again = TensorQuantization.from_json(json.loads(json.dumps(entry.to_json())))
    np.testing.assert_array_equal(again.scale, entry.scale)
    assert (again.name, again.shape, again.dtype, again.zero_point, again.lo, again.hi) == (
        *("x", (1, 3, 2, 2), "int16"),
        *(-5, -99, 99),
    )
    ties = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5], np.float32).reshape(1, 6)
    assert TensorQuantization("t", (1, 6), "int8", 1.0, 0, -128, 127).quantize(ties).tolist() == [[0, 2, 2, 0, -2, -2]]


@pytest.mark.parametrize("size", [0, 1, LARGE - 1, 2 * LARGE, 5 * LARGE + 7])
def test_memory_in_large_pages_holds_what_it_held(size: int) -> None:
    """Also what lies beside it, in the same pages."""
    held = np.random.default_rng(0).integers(0, 256, size + 2 * LARGE, np.uint8)
    before = held.copy()
    ask_for_large_pages(held[LARGE // 2 : LARGE // 2 + size])
    np.testing.assert_array_equal(held, before)
    held[:] = 1
    assert int(held.sum()) == len(held)
