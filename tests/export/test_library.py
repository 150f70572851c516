"""The shared library: the integers and the real values of the module, in processes without TVM."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from c_programs import STRICT, compile_c, compiles
from typer.testing import CliRunner

import mrt
from mrt.cli import app
from mrt.errors import CompilationError, ConfigError
from mrt.export import library
from mrt.export.c_text import C_TYPES
from mrt.model import QuantizedModel
from mrt.quantization.options import QuantizationConfig
from mrt.runtime import threads as pool
from mrt.symbol import Array, GraphBuilder, NumpyRunner, TensorType, find_operator
from mrt.symbol.operators.state import Assign
from mrt.symbol.quantized_tensor import TensorQuantization
from tests.cached_rows import AT, X, quantized
from tests.emulation import Emulation

BATCH, SAMPLES = 2, 5
RUNTIME = Path(str(library.__file__)).with_name("runtime.c")
THREAD_POOL = Path(str(pool.__file__)).parent


@pytest.fixture(scope="module")
def network() -> QuantizedModel:
    """Two inputs, two outputs and a float tail, which takes a softmax of the first."""
    builder, random = GraphBuilder(), np.random.default_rng(0)
    x, y = builder.input("x", TensorType((BATCH, 12))), builder.input("y", TensorType((BATCH, 4)))
    weight = builder.parameter("w", random.standard_normal((4, 12)).astype(np.float32))
    dense = builder.apply(find_operator("FullyConnected")(num_hidden=4, no_bias=True), [x, weight], "dense")
    total = builder.apply(find_operator("elemwise_add")(), [dense, y], "total")
    graph = builder.graph([builder.apply(find_operator("softmax")(), [total], "chance"), total])
    data = {"x": random.standard_normal((40, 12)), "y": random.standard_normal((40, 4))}
    batches = {name: values.astype(np.float32) for name, values in data.items()}
    return mrt.quantize(graph, batches, QuantizationConfig(preset="fast"), runner=NumpyRunner())


@pytest.fixture(scope="module")
def files(network: QuantizedModel, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The header and the library, for two cores."""
    header, shared = network.to_library(tmp_path_factory.mktemp("library"), name="net", target={"threads": 2})
    return header, shared


CALLED = """
import ctypes, sys
import numpy as np
folder, threads = sys.argv[1], int(sys.argv[2])
data = np.load(folder + "/data.npz")
library = ctypes.CDLL(folder + "/libnet.so")
library.net_create.restype = ctypes.c_void_p
instance = ctypes.c_void_p(library.net_create(threads))
assert instance.value

def called(function, *given):
    outputs = [np.full_like(data[key], 77) for key in data if key[:-1] == function]
    held = [np.ascontiguousarray(a) for a in given]
    arrays = [ctypes.c_void_p(a.ctypes.data) for a in (*held, *outputs)]
    return getattr(library, function)(instance, ctypes.c_int64(len(given[0])), *arrays), outputs

for function in ("net_run", "net_run_integers"):
    status, outputs = called(function, data[function + "_x"], data[function + "_y"])
    assert status == 0, status
    for i, found in enumerate(outputs):
        assert found.tobytes() == data[function + str(i)].tobytes(), (function, i)
broken = data["net_run_y"].copy()
broken[-1, -1] = np.nan
status, outputs = called("net_run", data["net_run_x"], broken)
assert status == 2 and (outputs[0] == 77).all(), status
beyond = data["net_run_integers_x"].copy()
beyond.flat[3] = data["beyond"]
assert called("net_run_integers", beyond, data["net_run_integers_y"])[0] == int(data["is_refused"])
assert called("net_run", data["net_run_x"][:0], data["net_run_y"][:0])[0] == -3
library.net_destroy(instance)
assert not [line for line in open("/proc/self/maps") if "tvm" in line.lower()]
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_process_without_tvm_gives_the_same_bits(
    network: QuantizedModel, files: tuple[Path, Path], threads: int
) -> None:
    """Of more samples than a batch, whose last call is filled up; and what is refused."""
    random, folder = np.random.default_rng(1), files[1].parent
    real = {e.name: random.standard_normal((SAMPLES, *e.shape[1:])).astype(np.float32) for e in network.inputs}
    module, integers = network.compile(), network.quantize_inputs(real)
    whole = network.rebatched(SAMPLES).graph.evaluate(integers)
    entry = network.inputs[0]
    is_open = entry.hi < np.iinfo(entry.dtype).max
    data = {"beyond": entry.hi + is_open, "is_refused": int(is_open)}
    for name, given, outputs in (("net_run", real, module(real)), ("net_run_integers", integers, whole)):
        data |= {f"{name}_{key}": value for key, value in given.items()}
        data |= {f"{name}{i}": value for i, value in enumerate(outputs)}
    np.savez(folder / "data.npz", **data)
    command = [sys.executable, "-c", CALLED, str(folder), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    tail = network.rebatched(SAMPLES).postprocess
    assert tail is not None and data["net_run0"].sum(axis=1) == pytest.approx(np.ones(SAMPLES), abs=1e-5)


def test_it_needs_the_c_library_alone_and_shows_its_header_alone(files: tuple[Path, Path]) -> None:
    if shutil.which("readelf") is None or shutil.which("nm") is None:
        pytest.skip("readelf or nm is absent: install binutils")
    header, shared = files
    needed = subprocess.run(["readelf", "-d", shared], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"NEEDED.*\[(\w+)\.", needed)) <= {"libc", "libm", "libpthread", "ld-linux-x86-64"}
    shown = subprocess.run(["nm", "-D", "--defined-only", shared], capture_output=True, text=True, check=True).stdout
    symbols = {line.split()[-1].split("@")[0] for line in shown.splitlines()}
    assert symbols == set(re.findall(r"\b(net_\w+)[(\[]", header.read_text()))


MAIN = """\
#include <stdio.h>
#include "net.h"
int main(void) {
  static float x[NET_INPUT0_SIZE], y[NET_INPUT1_SIZE], chance[NET_OUTPUT0_SIZE], total[NET_OUTPUT1_SIZE];
  net_instance *network = net_create(1);
  if (network == NULL || net_run(network, 1, x, y, chance, total) != 0) { return 1; }
  for (int i = 0; i < NET_OUTPUT0_SIZE; ++i) { printf("%.9g\\n", (double)chance[i]); }
  static X xq[NET_INPUT0_SIZE];
  static Y yq[NET_INPUT1_SIZE];
  static TOTAL q[NET_INTEGER_OUTPUT0_SIZE];
  for (int i = 0; i < NET_INPUT0_SIZE; ++i) { xq[i] = (X)(i % 5); }
  if (net_run_integers(network, 1, xq, yq, q) != 0) { return 2; }
  for (int i = 0; i < NET_INTEGER_OUTPUT0_SIZE; ++i) { printf("%d\\n", (int)q[i]); }
  net_destroy(network);
  return 0;
}
"""


def printed_by_c(
    network: QuantizedModel, folder: Path, by: str = "", emulator: tuple[str, ...] = ()
) -> tuple[list[float], list[int]]:
    """The chances of zeros, and integers of integers, of a program that is linked to the library in a folder."""
    (folder / "main.c").write_text(MAIN)
    entries = zip(("X", "Y", "TOTAL"), (*network.inputs, *network.outputs), strict=True)
    types = [f"-D{name}={C_TYPES[entry.dtype]}" for name, entry in entries]
    compile_c(
        *STRICT, *types, folder / "main.c", f"-L{folder}", "-lnet", f"-Wl,-rpath,{folder}", "-o", folder / "main", by=by
    )
    done = subprocess.run([*emulator, folder / "main"], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    return [float(line) for line in lines[:4]], [int(line) for line in lines[4:]]


def expected_of_c(network: QuantizedModel) -> tuple[Array, list[int]]:
    single = network.rebatched(1)
    x, y = (np.zeros(entry.shape, entry.dtype) for entry in single.inputs)
    (q,) = single.graph.evaluate({"x": x, "y": y} | {"x": (np.arange(x.size) % 5).astype(x.dtype).reshape(x.shape)})
    zeros = {entry.name: np.zeros(entry.shape, np.float32) for entry in single.inputs}
    return np.asarray(single.compile()(zeros)[0])[0], q[0].tolist()


def test_a_program_in_c_links_to_it(network: QuantizedModel, files: tuple[Path, Path]) -> None:
    chances, integers = expected_of_c(network)
    found = printed_by_c(network, files[1].parent)
    assert (np.float32(found[0]).tolist(), found[1]) == (chances.tolist(), integers)


@pytest.mark.slow
def test_it_is_made_for_other_machines(network: QuantizedModel, tmp_path: Path) -> None:
    """By their linker, and run by an emulator; real values differ by what machines round."""
    machine = Emulation.of("aarch64")
    if shutil.which("aarch64-linux-gnu-g++") is None:
        pytest.skip("aarch64-linux-gnu-g++ is absent: install Debian's g++-aarch64-linux-gnu")
    network.to_library(tmp_path, name="net", target={"mtriple": "aarch64-unknown-linux-gnu", "threads": 1})
    found = printed_by_c(network, tmp_path, machine.compiler, machine.emulator)
    chances, integers = expected_of_c(network)
    np.testing.assert_allclose(found[0], chances, rtol=1e-6)
    assert found[1] == integers


def test_states_are_kept_by_the_instance(tmp_path: Path) -> None:
    """An output late by one call, of several streams at once; a reset begins anew."""
    builder, type = GraphBuilder(), TensorType((BATCH, 3))
    x, past = builder.input("x", type), builder.input("past", type)
    first = builder.parameter("first", np.full((1, 1), 0.5, np.float32))
    kept = builder.apply(Assign(), [x, past, first], "kept")
    graph = builder.graph([builder.apply(find_operator("_mul_scalar")(scalar=2.0), [past], "late"), kept])
    samples = {name: np.float32([[-1, 0.5, 1], [1, 0, -0.5]]) for name in ("x", "past")}
    model = mrt.quantize(graph, samples, QuantizationConfig(preset="fast"), runner=NumpyRunner())
    model.to_library(tmp_path, name="net")
    (tmp_path / "main.c").write_text(STREAM)
    compile_c(*STRICT, tmp_path / "main.c", f"-L{tmp_path}", "-lnet", f"-Wl,-rpath,{tmp_path}", "-o", tmp_path / "main")
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = np.array(done.stdout.split(), np.float32).reshape(4, BATCH, 3)
    steps = np.array([np.arange(6).reshape(BATCH, 1, 3) / 8 + i / 8 for i in range(3)], np.float32)
    for place in range(BATCH):
        stream = model.stream()
        expected = [*map(stream, steps[:, place]), model.stream()(steps[0, place])]
        np.testing.assert_array_equal(found[:, place], np.concatenate(expected))
    assert np.abs(found[1] / 2 - steps[0, :, 0]).max() < 0.005 and np.abs(found[3] - 1).max() < 0.001


@pytest.mark.parametrize("others", [False, True], ids=["the cache", "another state, too"])
def test_rows_of_states_are_changed_where_they_lie(tmp_path: Path, others: bool) -> None:
    """Streams of integers and of real values by turns, each with a cache of its own."""
    model = quantized(others)
    model.to_library(tmp_path, name="net")
    (tmp_path / "main.c").write_text(BY_TURNS)
    types = [f"-D{name}={C_TYPES[entry.dtype]}" for name, entry in zip(("X", "AT"), model.inputs, strict=False)]
    types.append(f"-DY={C_TYPES[model.outputs[0].dtype]}")
    compile_c(
        *STRICT,
        *types,
        tmp_path / "main.c",
        f"-L{tmp_path}",
        "-lnet",
        f"-Wl,-rpath,{tmp_path}",
        "-o",
        tmp_path / "main",
    )
    real, backwards = {"x": X, "at": AT}, {"x": X[::-1], "at": AT[::-1]}
    integers = {entry.name: entry.quantize(backwards[entry.name]) for entry in model.inputs[:2]}
    content = b"".join(
        np.ascontiguousarray(array[step]).tobytes()
        for step in range(len(X))
        for array in (*integers.values(), *real.values())
    )
    done = subprocess.run([tmp_path / "main"], input=content, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    module = model.compile()
    y, reals = module.stream(integer=True).along(integers)[0], module.stream().along(real)[0]
    assert done.stdout == b"".join(a.tobytes() + b.tobytes() for a, b in zip(y, reals, strict=True))


BY_TURNS = """\
#include <stdio.h>
#include "net.h"
int main(void) {
  static X x[NET_INPUT0_SIZE];
  static AT at[NET_INPUT1_SIZE];
  static float xs[NET_INPUT0_SIZE], ats[NET_INPUT1_SIZE], real[NET_OUTPUT0_SIZE];
  static Y y[NET_OUTPUT0_SIZE];
  net_instance *network = net_create(1);
  if (network == NULL) { return 1; }
  while (fread(x, sizeof x, 1, stdin) == 1) {
    if (fread(at, sizeof at, 1, stdin) != 1) { return 2; }
    if (fread(xs, sizeof xs, 1, stdin) != 1 || fread(ats, sizeof ats, 1, stdin) != 1) { return 3; }
    if (net_run_integers(network, 1, x, at, y) != 0 || net_run(network, 1, xs, ats, real) != 0) { return 4; }
    if (fwrite(y, sizeof y, 1, stdout) != 1 || fwrite(real, sizeof real, 1, stdout) != 1) { return 5; }
  }
  net_destroy(network);
  return 0;
}
"""

STREAM = """\
#include <stdio.h>
#include "net.h"
int main(void) {
  float x[NET_BATCH * NET_INPUT0_SIZE], late[NET_BATCH * NET_OUTPUT0_SIZE];
  net_instance *network = net_create(1);
  if (network == NULL || net_run(network, 1, x, late) != -2) { return 1; }
  for (int call = 0; call < 4; ++call) {
    for (int i = 0; i < NET_BATCH * NET_INPUT0_SIZE; ++i) { x[i] = (float)(i + call) / 8.0f; }
    if (call == 3) { net_reset(network); }
    if (net_run(network, NET_BATCH, x, late) != 0) { return 2; }
    for (int i = 0; i < NET_BATCH * NET_OUTPUT0_SIZE; ++i) { printf("%.9g ", (double)late[i]); }
  }
  net_destroy(network);
  return 0;
}
"""

POOL = """\
#define BATCH 1
#define CONSTANT_BYTES 1
#define MOST_INPUTS 1
#define MOST_AXES 1
#ifndef NEEDS_TILES
#define NEEDS_TILES 0
#endif
#include "runtime.c"
const unsigned char mrt_constants[1] = {0};
static const input_facts inputs[] = {{INT_CODE, 32, 1, {1}, 4, -1, 0, 9, true}};
static const output_facts outputs[] = {{0, NULL, 4, true, -1}};
enum { TURNS = 49 };
static int32_t turns[TURNS];
/* As TVM divides turns among parts. */
static int part(int place, part_group *group, void *data) {
  int step = (TURNS + group->count - 1) / group->count;
  for (int i = place * step; i < TURNS && i < (place + 1) * step; ++i) turns[i] += *(int32_t *)data;
  return 0;
}
static int failing(int place, part_group *group, void *data) {
  (void)data;
  return place == group->count - 1 ? -1 : 0;
}
static int kernel(void *self, const argument *arguments, int32_t count, argument *result) {
  tensor *given = arguments[0].value.pointer, *outputs_memory = arguments[3].value.pointer;
  (void)self, (void)count, (void)result;
  if (launch(part, given->data, 0) != 0 || launch(part, given->data, 7) != 0) return -1;
  if (launch(failing, NULL, 0) == 0 || launch(failing, NULL, 3) == 0) return -1;
  int32_t sum = turns[0];
  for (int i = 1; i < TURNS; ++i) sum = turns[i] == turns[0] ? sum : -1;
  *(int32_t *)outputs_memory->data = sum;
  return 0;
}
#define FACTS {kernel, 1, 1, 0, inputs, outputs, NULL, 0, 64}
static const function_facts functions[FUNCTIONS] = {FACTS, FACTS};
int main(void) {
  int32_t expected = 0;
  for (int threads = 1; threads <= 4; ++threads) {
    instance_type *self = create(threads);
    if (self == NULL) return 1;
    for (int32_t i = 0; i < 600; ++i) {
      int32_t value = i % 10, sum = 0;
      const void *given[] = {&value};
      void *wanted[] = {&sum};
      expected += 2 * value;
      if (run(self, i % FUNCTIONS, 1, given, wanted) != 0 || sum != expected) return 2;
    }
    reset(self);
    destroy(self);
  }
  return create(0) != NULL;
}
"""


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_threads_do_every_turn_of_a_loop_once_before_it_ends(sanitizer: str, tmp_path: Path) -> None:
    if not compiles("int f(void) { return 0; }", tmp_path, f"-fsanitize={sanitizer}"):
        pytest.skip(f"this compiler has no -fsanitize={sanitizer}")
    (tmp_path / "main.c").write_text(POOL)
    warnings = ("-std=gnu99", "-Wall", "-Wextra", "-pedantic", "-Werror")
    flags = ("-O1", "-pthread", f"-fsanitize={sanitizer}", f"-I{RUNTIME.parent}", f"-I{THREAD_POOL}")
    compile_c(*warnings, *flags, "-DNEEDS_TILES=1", "-fsyntax-only", tmp_path / "main.c")
    compile_c(*warnings, *flags, tmp_path / "main.c", "-o", tmp_path / "main")
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"


def test_inputs_of_every_kind(tmp_path: Path) -> None:
    """Truth values that are given as integers, and real values of two scales; what lies outside is named."""
    builder = GraphBuilder()
    kinds = (("mask", "bool"), ("x", "int16"), ("y", "int16"))
    symbols = [builder.input(name, TensorType((1, 4), dtype)) for name, dtype in kinds]
    graph = builder.graph([builder.apply(find_operator("where")(), symbols, "chosen")])
    inputs = [
        TensorQuantization("mask", (1, 4), "bool", 1.0, 0, 0, 1, is_given=True),
        TensorQuantization("x", (1, 4), "int16", 0.5, 0, -300, 300),
        TensorQuantization("y", (1, 4), "int16", 0.25, 3, -128, 127),
    ]
    outputs = [TensorQuantization("chosen", (1, 4), "int16", 1.0, 0, -300, 300)]
    for name, content in library.to_library(graph, inputs, outputs, None, "0" * 64, "net").items():
        (tmp_path / name).write_bytes(content)
    loaded = ctypes.CDLL(str(tmp_path / "libnet.so"))
    loaded.net_create.restype = ctypes.c_void_p
    instance = ctypes.c_void_p(loaded.net_create(1))

    def status(function: str, *arrays: Array) -> int:
        pointers = (ctypes.c_void_p(array.ctypes.data) for array in arrays)
        return int(getattr(loaded, function)(instance, ctypes.c_int64(1), *pointers))

    mask, x, y = np.uint8([[1, 0, 1, 0]]), np.int16([[300, -300, 7, 8]]), np.int16([[-128, 127, 1, 2]])
    q, real = np.zeros((1, 4), np.int16), np.zeros((1, 4), np.float32)
    assert status("net_run_integers", mask, x, y, q) == 0 and q.tolist() == [[300, 127, 7, 2]]
    assert status("net_run", mask, np.float32([[1, 2, 3, 400]]), np.float32([[0, 1, 2, 99]]), real) == 0
    assert real.tolist() == [[2, 7, 6, 127]]
    assert status("net_run_integers", mask, x + np.int16(1), y, q) == 2
    assert status("net_run_integers", mask * np.uint8(2), x, y, q) == 1
    loaded.net_destroy(instance)


def test_the_command(network: QuantizedModel, tmp_path: Path) -> None:
    network.save(tmp_path)
    words = ["export", str(tmp_path), "--format", "library", "--batch", "1", "--target", '{"threads": 1}']
    run = CliRunner().invoke(app, words)
    assert run.exit_code == 0, run.output
    assert (tmp_path / "library" / "libmodel.so").is_file()
    assert "#define MODEL_BATCH 1\n" in (tmp_path / "library" / "model.h").read_text()
    run = CliRunner().invoke(app, ["export", str(tmp_path), "--format", "c", "--target", "native"])
    assert run.exit_code == 1 and "--target" in run.stderr and "library" in run.stderr


def test_what_cannot_be_made_is_one_error(network: QuantizedModel, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="letters, digits"):
        network.to_library(tmp_path / "none", name="a-b")
    with pytest.raises(CompilationError, match="linker"):
        network.to_library(tmp_path / "none", target={"linker": "no-such-linker"})
    assert not (tmp_path / "none").exists()
