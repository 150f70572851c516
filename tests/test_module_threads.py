"""Threads of a compiled module: the integers do not depend on them, and a process may fork, call at once and unload."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mrt.backend import compile_model
from mrt.errors import CompilationError
from mrt.runtime import Linkable, Linker, Module, threads
from mrt.symbol import Graph, GraphBuilder, TensorType, find_operator
from mrt.symbol.quantized_tensor import TensorQuantization

CHANNELS, SIDE = 32, 40
ROOT = str(Path(__file__).parents[1])
SOURCES = Path(str(threads.__file__)).parent
LIBRARY = """
#include "module_threads.c"
#include <string.h>
enum { TURNS = 49 };
static const char *said = "";
static void hear(const char *kind, const char *message) { (void)kind, said = message; }
void (*__TVMFFIErrorSetRaisedFromCStr)(const char *, const char *) = hear;
typedef struct { int turns[TURNS]; } work_type;
/* As TVM divides turns among parts, each some microseconds long. */
static int part(int place, part_group *group, void *data) {
  int step = (TURNS + group->count - 1) / group->count;
  for (int i = place * step; i < TURNS && i < (place + 1) * step; ++i) {
    for (volatile int j = 0; j < 3000; ++j) continue;
    ++((work_type *)data)->turns[i];
  }
  return 0;
}
static int failing(int place, part_group *group, void *data) {
  (void)data;
  return place == group->count / 2 ? -1 : 0;
}
/* Whether each turn of all loops is done once. */
int run_loops(int loops) {
  work_type work;
  memset(&work, 0, sizeof work);
  for (int i = 0; i < loops; ++i) {
    if (__TVMBackendParallelLaunch(part, &work, 0) != 0) return 0;
    for (int j = 0; j < TURNS; ++j) if (work.turns[j] != i + 1) return 0;
  }
  return 1;
}
const char *fail(void) { return __TVMBackendParallelLaunch(failing, NULL, 0) == 0 ? "" : said; }
"""
COUNT = """
import _ctypes, ctypes, os, threading, time
before = len(os.listdir("/proc/self/task"))
def running():
    return len(os.listdir("/proc/self/task")) - before
def until(count, act=lambda: time.sleep(0.1)):
    end = time.monotonic() + 60
    while running() != count and time.monotonic() < end:
        act()
    return running() == count
"""
LOAD = """
library = ctypes.CDLL("./library.so")
library.fail.restype = ctypes.c_char_p
"""
CALL = """
import numpy as np
from mrt.runtime import load_module
module, x, y = load_module("model.so"), np.load("x.npy"), np.load("y.npy")
before = len(os.listdir("/proc/self/task"))
print(all((module.run_integer(x) == y).all() for _ in range(20)), running())
"""


def library_of(made: Path, *options: str) -> Path:
    """The folder, with a library whose functions run loops by the threads of a module."""
    (made / "library.c").write_text(LIBRARY)
    flags = ["-std=gnu99", "-O1", "-Wall", "-Wextra", "-pedantic", "-Werror", "-shared", "-fPIC", "-pthread", *options]
    command = [Linker().command(), *flags, f"-I{SOURCES}", "-x", "c", "library.c", "-o", "library.so"]
    done = subprocess.run(command, cwd=made, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a library whose threads wait long for work."""
    return library_of(tmp_path_factory.mktemp("threads"), "-DIDLE_SECONDS=100")


def run(folder: Path, program: str, load: str = LOAD, **environment: str) -> list[str]:
    """What a program prints that runs in a folder after `load`."""
    kept = {key: value for key, value in os.environ.items() if key not in ("TVM_NUM_THREADS", "OMP_NUM_THREADS")}
    command, settings = [sys.executable, "-c", COUNT + load + program], {**kept, "PYTHONPATH": ROOT, **environment}
    done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("count", ["1", "2", "5"])
def test_every_turn_is_done_once_by_as_many_threads_as_are_stated(folder: Path, count: str) -> None:
    program = "print(library.run_loops(300), running())"
    assert run(folder, program, TVM_NUM_THREADS=count, OMP_NUM_THREADS="9") == ["1", str(int(count) - 1)]
    assert run(folder, program, OMP_NUM_THREADS=count) == ["1", str(int(count) - 1)]


def test_idle_threads_end_and_are_started_anew(tmp_path: Path) -> None:
    program = "print(library.run_loops(9), until(0), library.run_loops(9), until(2, lambda: library.run_loops(9)))"
    assert run(library_of(tmp_path), program, TVM_NUM_THREADS="3") == ["1", "True", "1", "True"]


def test_threads_end_where_the_library_is_unloaded(folder: Path) -> None:
    program = """
library.run_loops(9)
begun = running()
_ctypes.dlclose(library._handle)
print(begun, running(), sum("library.so" in line for line in open("/proc/self/maps")))
"""
    assert run(folder, program, TVM_NUM_THREADS="3") == ["2", "0", "0"]


def test_a_forked_process_starts_threads_of_its_own(folder: Path) -> None:
    program = """
library.run_loops(9)
child = os.fork()
if child == 0:
    before = len(os.listdir("/proc/self/task"))
    os._exit(0 if library.run_loops(9) == 1 and running() == 2 else 1)
print(os.waitpid(child, 0)[1], library.run_loops(9))
"""
    assert run(folder, program, TVM_NUM_THREADS="3") == ["0", "1"]


def test_callers_at_once_run_their_loops_and_no_more_threads(folder: Path) -> None:
    program = """
found = []
callers = [threading.Thread(target=lambda: found.append(library.run_loops(500))) for _ in range(3)]
for each in callers: each.start()
for each in callers: each.join()
print(found, until(1))
"""
    assert " ".join(run(folder, program, TVM_NUM_THREADS="2")) == "[1, 1, 1] True"


@pytest.mark.parametrize("count", ["1", "2"])
def test_a_part_that_fails_is_an_error_of_the_caller(folder: Path, count: str) -> None:
    program = "print(*{library.fail().decode() for _ in range(99)}, sep=', ')"
    assert " ".join(run(folder, program, TVM_NUM_THREADS=count)) == "a part of a kernel failed"


@pytest.fixture(scope="module")
def graph() -> Graph:
    """A convolution of so much work that threads share its loops."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, CHANNELS, SIDE, SIDE), "int8"))
    values = np.random.default_rng(0).integers(-127, 128, (CHANNELS, CHANNELS, 3, 3)).astype(np.int8)
    operator = find_operator("Convolution")(kernel=(3, 3), pad=(1, 1), num_filter=CHANNELS, no_bias=True)
    return builder.graph([builder.apply(operator, [x, builder.parameter("weight", values)], "y")])


def compiled(graph: Graph, count: int) -> Module:
    inputs, outputs = (
        [TensorQuantization(s.name, s.shape, s.dtype, 1.0, 0, lo, hi) for s in symbols]
        for symbols, lo, hi in ((graph.inputs, -127, 127), (graph.outputs, -(2**31), 2**31 - 1))
    )
    return compile_model(graph, inputs, outputs, None, "0" * 64, {"threads": count})


def test_a_module_has_threads_of_its_own_and_one_for_a_core_has_none(graph: Graph, tmp_path: Path) -> None:
    """TVM's runtime finds no pointer that it could set to its own threads, of which it starts none."""
    alone, shared = compiled(graph, 1), compiled(graph, 2)
    assert b"pthread_create" in shared.files["model.so"] and b"pthread_create" not in alone.files["model.so"]
    shared.save(tmp_path / "model.so")
    x = np.random.default_rng(1).integers(-127, 128, graph.inputs[0].shape).astype(np.int8)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", graph.evaluate({"x": x})[0])
    for count in (1, 3):
        assert run(tmp_path, CALL, "", TVM_NUM_THREADS=str(count)) == ["True", str(count - 1)]


def test_a_program_that_compiles_no_c_is_named(tmp_path: Path) -> None:
    program = tmp_path / "linker"
    program.write_text("#!/bin/sh\necho 'error: nothing but linking' >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(CompilationError, match=r"linker: error: nothing but linking; .* threads: 1"):
        Linkable([b""], Linker(given=str(program)), has_threads=True).library()


def test_the_object_of_threads_is_the_same_each_time() -> None:
    compiler = Linker().command()
    first = threads.module_threads(compiler)
    threads.module_threads.cache_clear()
    assert threads.module_threads(compiler) == first
