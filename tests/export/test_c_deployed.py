"""Exported C as a program uses it: its example, real values, states, several instances at once, C++."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from c_programs import SANITIZED, STRICT, compile_c, compiles, in_c
from exported import facts

from mrt.export.c_floats import conversions
from mrt.export.c_text import C_TYPES
from mrt.model import QuantizedModel
from mrt.symbol import Array, GraphBuilder, TensorType, find_operator
from mrt.symbol.operators.state import Assign
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.symbol.rounding import ROUNDINGS


def built(folder: Path, *flags: str) -> Path:
    """The program of the example in a folder."""
    main = folder / "model_example" / "main.c"
    compile_c(*STRICT, *flags, f"-I{folder}", folder / "model.c", main, "-o", folder / "program")
    return folder / "program"


def printed(program: Path, samples: Sequence[Array]) -> Array:
    """What the program writes for float32 samples, one row each."""
    fed = b"".join(np.asarray(sample, np.float32).tobytes() for sample in samples)
    done = subprocess.run([program], input=fed, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return np.array([line.split() for line in done.stdout.decode().splitlines()], np.float32)


def real_samples(model: QuantizedModel) -> list[Array]:
    """Ordinary values, and infinities."""
    random = np.random.default_rng(3)
    made = [random.standard_normal(model.inputs[0].shape).astype(np.float32) for _ in range(4)]
    made[0].flat[:2] = np.inf, -np.inf
    return made


def expected(model: QuantizedModel, samples: Sequence[Array]) -> Array:
    integers = [model.graph.evaluate(model.quantize_inputs(sample)) for sample in samples]
    return np.concatenate([model.dequantize_outputs(q)[0] for q in integers])


def test_the_example_takes_and_gives_real_values(model: QuantizedModel, tmp_path: Path) -> None:
    model.to_c(tmp_path)
    program, samples = built(tmp_path, *SANITIZED), real_samples(model)
    np.testing.assert_array_equal(printed(program, samples), expected(model, samples))
    fed = np.full(model.inputs[0].shape, np.nan, np.float32).tobytes()
    assert subprocess.run([program], input=fed, capture_output=True, check=False).returncode == 1


@pytest.mark.slow
def test_cmake_builds_the_example(model: QuantizedModel, tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is absent: install it")
    model.to_c(tmp_path, name="net")
    build = tmp_path / "build"
    for command in (["-S", tmp_path / "net_example", "-B", build], ["--build", build]):
        done = subprocess.run(["cmake", *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    samples = real_samples(model)
    np.testing.assert_array_equal(printed(build / "net_example", samples), expected(model, samples))


def test_states_lie_in_the_instance(tmp_path: Path) -> None:
    """x goes through two states, each of which holds next what another tensor is now: the output is two calls late."""
    builder, type = GraphBuilder(), TensorType((1, 3), "int8")
    x, near, far = (builder.input(name, type) for name in ("x", "near", "far"))
    first = [builder.parameter(name, np.array(v, np.int8)) for name, v in (("one", [[1]]), ("two", [[2, 3, 4]]))]
    doubled = builder.apply(find_operator("_mul_scalar")(scalar=2.0), [far])
    kept = [builder.apply(Assign(), [x, near, first[0]]), builder.apply(Assign(), [near, far, first[1]])]
    graph = builder.graph([kept[0], doubled, far, kept[1]])
    source = in_c(graph, facts(graph))
    assert source.state_bytes == 6 and "input1" not in source.files["model.h"]
    for name, text in (source.files | source.example).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="ascii")
    samples = np.arange(-7, 8, dtype=np.float32).reshape(5, 3)
    late = np.concatenate([[[2, 3, 4], [1, 1, 1]], samples[:3]])
    found = printed(built(tmp_path, *SANITIZED), samples)
    np.testing.assert_array_equal(found, np.concatenate([2 * late, late], axis=1))


THREADS = """\
#include <pthread.h>
#include <string.h>
#include "model.h"
static model_instance instances[2];
static SCORE scores[2][200][MODEL_OUTPUT0_SIZE];
static PIXEL pixels[200][MODEL_INPUT0_SIZE];
static void *work(void *given) {
  int which = given != 0;
  for (int i = 0; i < 200; ++i) {
    int at = which ? i : 199 - i; /* the two never do the same at once */
    if (model_run(&instances[which], pixels[at], scores[which][at]) != 0) { return given == 0 ? &instances : given; }
  }
  return 0;
}
int main(void) {
  pthread_t thread;
  void *failed = 0;
  for (int i = 0; i < 200; ++i)
    for (int j = 0; j < MODEL_INPUT0_SIZE; ++j) { pixels[i][j] = (PIXEL)(LOW + (i * 31 + j * 17) % SPAN); }
  if (pthread_create(&thread, 0, work, &scores) != 0) { return 2; }
  if (work(0) != 0 || pthread_join(thread, &failed) != 0 || failed != 0) { return 3; }
  return memcmp(scores[0], scores[1], sizeof scores[0]) != 0;
}
"""


def test_two_threads_run_an_instance_each(model: QuantizedModel, tmp_path: Path) -> None:
    """Under the sanitizer of threads, which sees every memory that both write."""
    if not compiles("int f(void) { return 0; }", tmp_path, "-fsanitize=thread"):
        pytest.skip("this compiler has no -fsanitize=thread")
    model.to_c(tmp_path)
    ((x,), (y,)) = model.inputs, model.outputs
    types = [f"-DPIXEL={C_TYPES[x.dtype]}", f"-DSCORE={C_TYPES[y.dtype]}", f"-DLOW=({x.lo})", f"-DSPAN={x.hi - x.lo}"]
    (tmp_path / "main.c").write_text(THREADS)
    files = [tmp_path / "main.c", tmp_path / "model.c"]
    compile_c(*STRICT, "-O1", "-fsanitize=thread", "-pthread", *types, *files, "-o", tmp_path / "program")
    done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_it_is_c_plus_plus_too(model: QuantizedModel, tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is absent: install it")
    _, source, *_ = model.to_c(tmp_path)
    flags = ["-std=c++11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-DMODEL_FLOATS"]
    compile_c(*flags, "-x", "c++", "-c", source, "-o", tmp_path / "model.o", by="g++")
    assert b"model_run" in (tmp_path / "model.o").read_bytes()


def quantizers() -> list[TensorQuantization]:
    """One for each way in which real values become integers, and with scales along two axes."""
    made = [
        TensorQuantization("x", (1, 40), "int8", 0.1, zero, -100, 120, rounding=rounding, zero_point_first=first)
        for rounding in ROUNDINGS
        for zero, first in ((0, False), (-7, False), (5, True))
    ]
    scales = np.array([[[0.1]], [[0.25]]]) * np.array([1.0, 3.0, 7.0, 0.3, 2.0])
    return [*made, TensorQuantization("x", (1, 2, 4, 5), "int32", scales, -(2**31), -(2**31), 2**31 - 1)]


def test_real_values_become_the_integers_of_the_model(tmp_path: Path) -> None:
    entries = quantizers()
    lines = ["#include <stdint.h>", *(f"#define Q{i}_FLOATS" for i in range(len(entries)))]
    for i, entry in enumerate(entries):
        lines += conversions(f"q{i}", [("x", entry)], [("y", entry)])
    code = "\n".join(lines).replace("static inline int q", "int q").replace("static inline void q", "void q")
    (tmp_path / "conversions.c").write_text(code + "\n")
    flags = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O2", "-shared", "-fPIC")
    compile_c(*flags, tmp_path / "conversions.c", "-o", tmp_path / "conversions.so")
    library = ctypes.CDLL(str(tmp_path / "conversions.so"))
    halves = np.arange(-10, 10).astype(np.float32) * np.float32(0.05)
    values = np.concatenate(
        [halves, np.random.default_rng(0).normal(0, 9, 14), [0, -0.0, 1e30, -1e30, np.inf, -np.inf]]
    )
    for i, entry in enumerate(entries):
        x = values.astype(np.float32).reshape(entry.shape)
        q, y = np.empty(entry.shape, entry.dtype), np.empty(entry.shape, np.float32)
        assert library[f"q{i}_quantize_x"](*(ctypes.c_void_p(a.ctypes.data) for a in (x, q))) == 0
        np.testing.assert_array_equal(q, entry.quantize(x), err_msg=f"{entry}")
        library[f"q{i}_dequantize_y"](*(ctypes.c_void_p(a.ctypes.data) for a in (q, y)))
        assert y.tobytes() == entry.dequantize(q).tobytes()
        x.flat[3] = np.nan
        assert library[f"q{i}_quantize_x"](*(ctypes.c_void_p(a.ctypes.data) for a in (x, q))) == 1
