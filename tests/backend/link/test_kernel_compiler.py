"""Kernels compiled in groups at once: the same file for any number of cores, and errors that come out."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import IntegerNetwork
from tvm import tirx

from mrt.backend import TvmRunner, compile_model
from mrt.backend.build import compile_executable
from mrt.backend.link.kernel_compiler import GROUP, KernelCompiler
from mrt.backend.lowering.module import build_module
from mrt.backend.machine import Machine
from mrt.errors import CompilationError, ModelFileError
from mrt.runtime import Module, load_module
from mrt.workers import in_order
from tests.faults import file_size_limit

TARGET = {"mcpu": "native", "threads": 1}


def test_any_number_of_cores_gives_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = IntegerNetwork(1)
    images = network.inputs[0].quantize(network.images(2))
    expected = [network.graph.evaluate({"image": image[None]}) for image in images]
    files = []
    for count in (1, 3):
        monkeypatch.setattr("mrt.workers.cores", lambda count=count: count)
        monkeypatch.setattr("mrt.backend.link.kernel_compiler.cores", lambda count=count: count)
        module = compile_model(network.graph, network.inputs, network.outputs, None, "0" * 64, TARGET)
        assert len(module._library.objects) > 3
        for _ in range(2):  # saving leaves the module as it was
            module.save(tmp_path / "model.so")
            files.append((tmp_path / "model.so").read_bytes())
        for found in (module, load_module(tmp_path / "model.so")):
            for place, outputs in enumerate(expected):
                for one, other in zip(found.run_integer(images[place : place + 1]), outputs, strict=True):
                    np.testing.assert_array_equal(one, other)
    assert all(file == files[0] for file in files)


@pytest.mark.usefixtures("soon")
def test_whoever_waits_compiles_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only other thread makes the first kernel until the others are made."""
    monkeypatch.setattr("mrt.backend.link.kernel_compiler.cores", lambda: 2)
    is_begun, others_are_made = threading.Event(), threading.Event()

    def form(group: Mapping[str, Any], target: Any) -> tuple[str, bool]:
        (name,) = group
        if name == "k0":
            is_begun.set()
            others_are_made.wait()
        elif name == "k1":  # the last one that is taken from the end
            others_are_made.set()
        return name, threading.current_thread() is threading.main_thread()

    compiler = KernelCompiler(Machine.of(TARGET), form, size=1)
    nothing = tirx.PrimFunc([], tirx.Evaluate(tirx.const(0, "int32")))
    for name in ("k0", "k1", "k2", "k1"):
        compiler.add(name, nothing)
    is_begun.wait()
    assert compiler.finish() == [("k0", False), ("k1", True), ("k2", True)]
    assert list(compiler.functions) == ["k0", "k1", "k2"]


ANEW = """
from networks import IntegerNetwork
from mrt.backend import compile_model
network = IntegerNetwork(1)
made = compile_model(network.graph, network.inputs, network.outputs, None, "0" * 64, {"threads": 1})
print(made.record.sha256)
"""


@pytest.mark.exhaustive
@pytest.mark.slow
def test_another_process_gives_the_same_file() -> None:
    """So that who does not trust a module can compile it anew and compare digests."""
    network = IntegerNetwork(1)
    made = compile_model(network.graph, network.inputs, network.outputs, None, "0" * 64, {"threads": 1})
    another = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": another}
    child = subprocess.run([sys.executable, "-c", ANEW], env=environment, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    assert child.stdout == f"{made.record.sha256}\n"


def test_the_same_kernel_is_compiled_once_and_groups_are_filled() -> None:
    network, machine = IntegerNetwork(1), Machine.of(TARGET)
    kernels = build_module(network.graph, target=TARGET)
    functions = {v.name_hint: f for v, f in kernels.functions.items() if isinstance(f, tirx.PrimFunc)}
    compiler = KernelCompiler(machine)
    for name in [*functions, *functions]:
        compiler.add(name, functions[name])
    built = compiler.finish()
    assert len(built) == -(-len(functions) // GROUP)
    for place, name in enumerate(functions):
        assert built[place // GROUP].implements_function(name)
    assert KernelCompiler(machine).finish() == []


def test_a_kernel_by_itself_is_one_entry() -> None:
    """TVM makes the only function of a module its main one, too, which would unpack the arguments once more."""
    functions = build_module(IntegerNetwork(1).graph, target=TARGET).functions
    compiler = KernelCompiler(Machine.of(TARGET), size=1)
    compiler.add("kernel", next(f for f in functions.values() if isinstance(f, tirx.PrimFunc)))
    (built,) = compiler.finish()
    entries = [line for line in built.inspect_source("ll").splitlines() if "@__tvm_ffi_" in line and "define" in line]
    assert len(entries) == 1
    assert "@__tvm_ffi_kernel" in entries[0]


def test_what_fails_in_another_thread_is_raised() -> None:
    network, machine = IntegerNetwork(1), Machine.of(TARGET)
    compiler = KernelCompiler(machine)
    free = tirx.call_extern("int32", "take", tirx.Var("nowhere", "int32"))
    compiler.add("open", tirx.PrimFunc([], tirx.Evaluate(free)))
    with pytest.raises(CompilationError, match="TVM cannot compile the graph"):
        compile_executable(build_module(network.graph, target=TARGET), machine, compiler=compiler)


def test_several_threads_run_one_graph() -> None:
    network = IntegerNetwork(1)
    images = network.inputs[0].quantize(network.images(12))
    evaluate = TvmRunner(TARGET).prepare(network.graph)
    found = in_order(lambda image: evaluate({"image": image[None]}), images)
    for outputs, image in zip(found, images, strict=True):
        for one, other in zip(outputs, network.graph.evaluate({"image": image[None]}), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_disk_that_takes_no_more_is_an_error(tmp_path: Path) -> None:
    """LLVM ends a process in which it cannot write, and a linker is ended by a signal."""
    network, path = IntegerNetwork(1), tmp_path / "model.so"

    def compiled() -> Module:
        return compile_model(network.graph, network.inputs, network.outputs, None, "0" * 64, TARGET)

    module = compiled()
    module.save(path)
    *code, data = map(len, module._library.objects)
    whole, part = path.read_bytes(), max(*code, data)
    image = network.inputs[0].quantize(network.images(1))
    unlinked = compiled()
    with (
        file_size_limit(max(code) - 1),
        pytest.raises(CompilationError, match=r"code cannot be kept: File too large.*ulimit"),
    ):
        compiled()
    with file_size_limit(part - 1):
        with pytest.raises(ModelFileError, match=r"cannot write .*model\.so: File too large"):
            module.save(path)
        for use in (lambda: unlinked.run_integer(image), lambda: unlinked.save(path)):
            with pytest.raises(CompilationError, match="cannot be linked: .*File too large"):
                use()
    with file_size_limit(len(whole) - 1), pytest.raises(CompilationError, match=r"cannot be linked .*limit exceeded"):
        unlinked.save(path)
    assert path.read_bytes() == whole
    assert {each.name for each in tmp_path.iterdir()} == {"model.so", "model.so.json"}
    with file_size_limit(len(whole)):
        unlinked.save(path)
    for found, expected in zip(unlinked.run_integer(image), network.graph.evaluate({"image": image}), strict=True):
        np.testing.assert_array_equal(found, expected)
