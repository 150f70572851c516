"""What benchmarks run, ours and others': how files are made (`makers.py`) and engines called; one process each.

    python benchmarks/peers.py --accuracy

compares how accurate quantized networks are, `peer_accuracy.py`, which has options of its own (--help).

    python benchmarks/peers.py '{"do": "make", …}'
    python benchmarks/peers.py '{"do": "run", …}'

is a process that `in_turns.py` starts. It writes JSON lines to the standard output; whatever else is printed goes to
the standard error.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from makers import MODULE, NETWORK, TEST_FILE, Array, isa_target, samples_of
from wild_makers import MAKERS

Outputs = Array | Sequence[Array]
"""Of one call, axis 0 the sample: of a network with one output the output, or all of them in order."""
Call = Callable[[], Outputs]
"""Runs once."""
Bind = Callable[[Array], Call]
"""From a batch of inputs to what runs on it."""

LEAST = 3
"""Timed calls of a turn, however long one takes."""


# Engines


def start_mrt_float(network: str, threads: int, batch: int, isa: str = "native") -> Bind:
    """The float network, compiled once; a batch runs in such parts as that of a module would."""
    import mrt
    from mrt.backend import TvmRunner, plan_batch
    from mrt.evaluation import run_batched

    graph = mrt.load_model(Path(network) / NETWORK, batch)
    (name,) = (symbol.name for symbol in graph.inputs)
    plan = plan_batch(graph, isa_target(threads, isa))
    runner = TvmRunner(plan.target)
    if plan.samples == batch:
        evaluate = runner.prepare(graph)
        return lambda x: lambda: evaluate({name: x})
    run = run_batched(graph, runner, plan.samples)
    workers = ThreadPoolExecutor(plan.workers)

    def bind(x: Array) -> Call:
        parts = [{name: part} for part in np.split(x, plan.workers)]
        return lambda: [np.concatenate(found) for found in zip(*workers.map(run, parts), strict=True)]

    return bind


def start_mrt_integer(module: str, threads: int, batch: int) -> Bind:
    """The compiled integer network: float in, dequantized out."""
    import mrt

    loaded = mrt.load_module(Path(module) / MODULE)
    return lambda x: lambda: loaded(x)


def start_onnx_runtime(network: str, threads: int, batch: int) -> Bind:
    import onnxruntime
    from network_builder import BATCH

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_free_dimension_override_by_name(BATCH, batch)
    session = onnxruntime.InferenceSession(Path(network) / NETWORK, options, ["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: lambda: session.run(None, {name: x})


def start_openvino(model: str, file: str, threads: int, batch: int) -> Bind:
    """A model by its file in a folder. The input is set once and outputs are not copied."""
    import openvino

    core = openvino.Core()
    read = core.read_model(Path(model) / file)
    read.reshape([batch, *(axis.get_length() for axis in list(read.input().get_partial_shape())[1:])])
    compiled = core.compile_model(
        read,
        "CPU",
        {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        },
    )

    def bind(x: Array) -> Call:
        request = compiled.create_infer_request()
        request.set_input_tensor(openvino.Tensor(x))
        return lambda: list(request.infer(share_outputs=True).values())

    return bind


STARTS: dict[str, Callable[..., Bind]] = {
    "mrt-f32": start_mrt_float,
    "mrt-int8": start_mrt_integer,
    "onnxruntime": start_onnx_runtime,
    "openvino": start_openvino,
}


def outputs_of(bind: Bind, test: Array, batch: int) -> Array:
    """The outputs of all test samples, run `batch` at a time; a batch that lacks some is filled with the first ones.

    Several outputs of a sample are one row.
    """
    places = np.arange(-(-len(test) // batch) * batch).reshape(-1, batch) % len(test)
    parts = [_joined(bind(np.ascontiguousarray(test[part]))()) for part in places]
    return np.concatenate(parts)[: len(test)]


def _joined(outputs: Outputs) -> Array:
    """Those of one call, copied: they may be the engine's own memory, which the next call writes."""
    if isinstance(outputs, np.ndarray):
        return outputs.copy()
    if len(outputs) == 1:
        return np.array(outputs[0])
    return np.concatenate([output.reshape(len(output), -1) for output in outputs], axis=1)


def times_of(call: Call, seconds: float) -> list[float]:
    """The seconds of each call, for as long as `seconds` and LEAST calls at least; the first call is not timed."""
    call()
    found: list[float] = []
    ended = time.perf_counter() + seconds
    while len(found) < LEAST or time.perf_counter() < ended:
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return found


# Instructions

ARCH_PRCTL, REQUEST_PERMISSION, MACHINE_X86_64 = 158, 0x1023, 0xC000003E
NO_NEW_PRIVILEGES, SET_SECCOMP, SECCOMP_FILTER = 38, 22, 2
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050001
"""Of Linux: linux/prctl.h, linux/seccomp.h, linux/bpf_common.h, asm/prctl.h; REFUSE gives EPERM."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def refuse_amx() -> None:
    """Has the kernel refuse this process the state of AMX tiles, for good; whoever uses them must ask for it first.

    ONNX Runtime knows no variable that would keep it from AMX. OSError where the kernel does not take the filter; other
    machines than x86-64 have no AMX.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return
    instructions = (
        (LOAD_WORD, 0, 0, 4),  # seccomp_data: the number of the call, the machine, the place, the arguments
        (JUMP_IF_EQUAL, 0, 5, MACHINE_X86_64),
        (LOAD_WORD, 0, 0, 0),
        (JUMP_IF_EQUAL, 0, 3, ARCH_PRCTL),
        (LOAD_WORD, 0, 0, 16),
        (JUMP_IF_EQUAL, 0, 1, REQUEST_PERMISSION),
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
    )
    layout = np.dtype([("code", np.uint16), ("if_true", np.uint8), ("if_false", np.uint8), ("value", np.uint32)])
    packed = np.array(list(instructions), layout)
    program = _Program(len(packed), packed.ctypes.data)
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = (ctypes.c_int, *(ctypes.c_void_p,) * 4)
    for option, *given in ((NO_NEW_PRIVILEGES, 1, 0), (SET_SECCOMP, SECCOMP_FILTER, ctypes.addressof(program))):
        if prctl(option, *given, 0, 0):
            number = ctypes.get_errno()
            raise OSError(number, f"AMX cannot be refused: {os.strerror(number)}")


# Processes


def make(maker: str, folder: str, arguments: Mapping[str, Any], replies: TextIO) -> None:
    """Runs a maker and tells its seconds and those of CPU, imports left out, and the peak of the resident memory."""
    for module in MAKERS[maker].modules:
        import_module(module)
    started, worked = time.perf_counter(), time.process_time()
    MAKERS[maker].make(Path(folder), **arguments)
    spent = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - worked}
    _say(replies, {**spent, "peak_mib": peak_mib()})


def peak_mib() -> float:
    """The peak of this process's resident memory. Where Linux tells it, without that of the process that began it."""
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def run(
    engine: str,
    arguments: Mapping[str, Any],
    test: str,
    threads: int,
    batch: int,
    isa: str,
    replies: TextIO,
) -> None:
    """Tells the outputs of the test samples; then, for every line of seconds that it reads, the times of its calls."""
    if isa != "native":
        refuse_amx()
    bind = STARTS[engine](**arguments, threads=threads, batch=batch)
    (samples,) = samples_of(Path(test) / TEST_FILE).values()
    _say(replies, {"outputs": outputs_of(bind, samples, batch).tolist()})
    call = bind(np.resize(samples, (batch, *samples.shape[1:])))
    for line in sys.stdin:
        _say(replies, {"seconds": times_of(call, json.loads(line))})


def _say(replies: TextIO, content: object) -> None:
    print(json.dumps(content), file=replies, flush=True)


def main() -> None:
    if "--accuracy" in sys.argv:
        import peer_accuracy

        peer_accuracy.main()
        return
    asked = json.loads(sys.argv[1])
    with os.fdopen(os.dup(1), "w") as replies:
        os.dup2(2, 1)
        {"make": make, "run": run}[asked.pop("do")](**asked, replies=replies)


if __name__ == "__main__":
    main()
