"""Modules that TVM compiles by itself: for any CPU, for one that is named, and never the end of the process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import tvm
from compiled import assert_same_values
from hypothesis import HealthCheck, given, settings
from layers import Layers, softmax_of
from networks import IntegerNetwork
from test_random_graphs import graphs
from tvm import relax
from tvm.target import codegen

from mrt.backend import build_portable
from mrt.backend.kernels.dot_instructions import needed_features
from mrt.backend.machine import Machine
from mrt.backend.schedule import serial
from mrt.compilation import Target
from mrt.errors import CompilationError
from mrt.symbol import Array, Graph

LLVM = {"kind": "llvm"}
CPUS = ("x86-64", "haswell", "skylake-avx512", "sapphirerapids")
ARM = {"mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"}
COMPILED = """
import json, sys
from pathlib import Path
import numpy as np, tvm
from tvm import relax

fed, *expected = np.load("arrays.npz").values()
for file, target, runs in json.loads(sys.argv[1]):
    if file != "any.json" and "mrt" not in sys.modules:
        import mrt.backend
        print("MRT is loaded")
    executable = tvm.compile(tvm.ir.load_json(Path(file).read_text()), tvm.target.Target(target))
    if runs:
        found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(fed))
        pairs = zip(found, expected, strict=True)
        same = all(a.numpy().dtype == b.dtype and np.array_equal(a.numpy(), b) for a, b in pairs)
    else:
        executable.mod.imports[0].write_to_file("code.o")  # LLVM makes no code before it is asked for
        same = "compiled"
    print(file, target.get("mcpu", target["kind"]), same)
"""


class Portable:
    """A `Runner` by `tvm.compile` alone."""

    def __init__(self, made: Target | None = None, compiled: Mapping[str, object] = LLVM) -> None:
        self._made, self._compiled = made, tvm.target.Target(dict(compiled))

    def prepare(self, graph: Graph):
        executable = tvm.compile(build_portable(graph, target=self._made), self._compiled)
        machine = relax.VirtualMachine(executable, tvm.cpu())

        def run(feeds: Mapping[str, Array]) -> list[Array]:
            given = [tvm.runtime.tensor(np.ascontiguousarray(feeds[symbol.name])) for symbol in graph.inputs]
            return [found.numpy() for found in machine["main"](*given)]

        return run


def runs_here(cpu: str) -> bool:
    """Whether this machine has what LLVM says of a CPU, as far as kernels use it."""
    own = Machine.of().target
    return cpu != "sapphirerapids" and all(
        codegen.target_has_features(name, own) for name in needed_features(Machine.of({"mcpu": cpu}))
    )


@pytest.mark.exhaustive
@pytest.mark.slow
def test_modules_are_compiled_by_tvm_alone_for_any_cpu_or_for_the_one_they_are_for(tmp_path: Path) -> None:
    """That for any CPU where MRT is not loaded; on a CPU that this machine is not the code is made and not run."""
    network = IntegerNetwork(2)
    fed = network.inputs[0].quantize(network.images(2))
    np.savez(tmp_path / "arrays.npz", fed, *network.graph.evaluate({"image": fed}))
    (tmp_path / "any.json").write_text(tvm.ir.save_json(build_portable(network.graph)))
    cases: list[tuple[str, dict[str, str], bool]] = [("any.json", LLVM, True)]
    machines = [*({"mcpu": cpu} for cpu in CPUS), ARM]
    cases += [("any.json", {**LLVM, **keys}, keys is not ARM and runs_here(keys["mcpu"])) for keys in machines]
    for keys in machines:
        file = f"{keys['mcpu']}.json"
        (tmp_path / file).write_text(tvm.ir.save_json(build_portable(network.graph, target={**keys, "threads": 1})))
        cases.append((file, {**LLVM, **keys}, keys is not ARM and runs_here(keys["mcpu"])))
    command = [sys.executable, "-c", COMPILED, json.dumps(cases)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    said = [f"{file} {target.get('mcpu', 'llvm')} {runs or 'compiled'}" for file, target, runs in cases]
    said.insert(1 + len(machines), "MRT is loaded")
    assert done.stdout.splitlines() == said


def test_a_module_for_this_machine_uses_its_instructions() -> None:
    """But for tiles, which a process must ask for."""
    machine, graph = Machine.of(), IntegerNetwork(1).graph
    text = build_portable(graph, target="native").script(show_meta=False)
    assert (f'"{",".join(needed_features(machine))}"' in text) == bool(needed_features(machine))
    assert "tile" not in build_portable(graph, target={"mcpu": "sapphirerapids"}).script(show_meta=False)
    network = IntegerNetwork(2)
    feeds = {"image": network.inputs[0].quantize(network.images(2))}
    found = Portable("native", machine.target.export()).prepare(network.graph)(feeds)
    assert_same_values(network.graph, found, network.graph.evaluate(feeds))


def test_a_module_for_any_cpu_holds_no_instruction() -> None:
    """What it calls of LLVM is what each of its targets has, or leaves out."""
    text = build_portable(IntegerNetwork(1).graph).script(show_meta=False)
    assert "mrt_" not in text and "T.tirx" not in text
    assert set(re.findall(r'call_llvm\w*\(.*?"(llvm\.[\w.]+)"', text)) <= {"llvm.prefetch"}


@pytest.mark.parametrize("target", [LLVM, {**LLVM, "mcpu": "haswell"}, {**LLVM, **ARM}, {"kind": "c"}])
def test_a_module_for_one_cpu_is_refused_for_another(target: dict[str, str]) -> None:
    """LLVM would end the process."""
    module = build_portable(IntegerNetwork(1).graph, target={"mcpu": "cascadelake"})
    with pytest.raises(CompilationError, match=r"avx512vnni.* lacks .*to_relax\(\)") as raised:
        tvm.compile(module, tvm.target.Target(target))
    assert "\n" not in str(raised.value)


def test_a_target_that_cannot_be_is_one_clear_line() -> None:
    with pytest.raises(CompilationError, match="LLVM knows no such CPU"):
        build_portable(IntegerNetwork(1).graph, target={"mcpu": "z80"})


def test_rows_matrices_and_concatenations_in_place() -> None:
    """Steps that share memory by the kernels' own plan, which TVM's plan of the same memory must not undo."""
    layers = Layers()
    image = layers.requantized(layers.input(layers.integers((2, 16, 6, 6), "int16", -200, 200)))
    parts = [layers.requantized(layers.convolution(image, n, (3, 3), pad=(1, 1))) for n in (16, 32)]
    joined = layers.hidden("Concat", *parts, dim=1)
    layers.finish(layers.requantized(layers.convolution(joined, 24, (1, 1))))
    layers.finish(layers.hidden("elemwise_add", joined, joined))
    rows = layers.input(layers.integers((2, 9, 40), "int8", -60, 60))
    layers.finish(softmax_of(layers, layers.hidden("clip", rows, a_min=-50.0, a_max=50.0)))
    layers.finish(layers.hidden("batch_dot", rows, rows, transpose_b=True))
    layers.check(runner=Portable())


@pytest.mark.exhaustive
@pytest.mark.slow
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_random_graphs(drawn: tuple[Graph, np.ndarray]) -> None:
    graph, fed = drawn
    feeds = {"x": fed}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(serial, "WORTH_THREADS", 0)
        assert_same_values(graph, Portable().prepare(graph)(feeds), graph.evaluate(feeds))
