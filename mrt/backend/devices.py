"""The CPU of a device: which target `native` stands for there, and whether code for a target runs there."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.target import codegen

from mrt.backend.link.kernel_compiler import as_object
from mrt.backend.link.kernel_pipeline import KERNELS
from mrt.backend.machine import Machine, features_beyond
from mrt.backend.tir.expressions import constant
from mrt.compilation import Target, TargetConfig, parse_target
from mrt.cpu_flags import flags_of, is_flagged
from mrt.errors import DeviceError
from mrt.runtime import Device, Linkable, Linker
from mrt.symbol import Array

CPUINFO, MOST_BYTES = b"/proc/cpuinfo\0", 1 << 16
MOST_CORES = 1024


def target_on(device: Device, target: Target) -> TargetConfig:
    """`target` for a device, whose CPU `native` then is, by LLVM's names; for this machine as it is given.

    Register tiles are not among what it finds: name the feature amx-int8 to use them. Raises DeviceError where the
    device cannot say which CPU it has, or has not what the target names.
    """
    config = parse_target(target)
    if device.is_here:
        return config
    if not config.is_native:
        check_fits(device, config)
        return config
    cpu = device.cpu
    if not cpu.name:
        raise DeviceError(
            f"{device.name}: its TVM has no LLVM to say which CPU it is; name that by compile.target, such as "
            "{mtriple: aarch64-linux-gnu, mcpu: cortex-a72}"
        )
    named = {"mcpu": cpu.name, "mtriple": cpu.triple}
    cpuinfo, threads = _asked(device, cpu.triple, config.linker)
    features = features_beyond(tvm.target.Target({"kind": "llvm", **named}), cpuinfo, lambda: False)
    found = {**named, "features": (*features, *config.features), "threads": config.threads or threads}
    return config.model_copy(update=found)


def check_fits(device: Device, target: TargetConfig) -> None:
    """DeviceError where code for a target, by LLVM's names, does not run on a device, as far as that can be told."""
    if device.is_here:
        return
    machine = Machine.of(target)
    triple, own = target.mtriple or codegen.llvm_get_system_triple(), device.cpu.triple
    if own and own.split("-")[0] != triple.split("-")[0]:
        raise DeviceError(
            f"{device.name}: code for {triple} does not run on {own}; compile for the device: leave out mcpu and "
            f"mtriple of compile.target, which then is the device's CPU"
        )
    flags = flags_of(_asked(device, triple, target.linker)[0])
    lacking = [name for name in machine.needs if not is_flagged(name, flags)]
    if flags and lacking:
        raise DeviceError(
            f"{device.name}: code for {target.mcpu or triple} uses {', '.join(lacking)}, which the device's CPU lacks; "
            f"compile for the device: leave out mcpu of compile.target, or name the CPU that it has"
        )


@lru_cache(maxsize=8)
def _asked(device: Device, triple: str, linker: str | None) -> tuple[str, int]:
    """Linux' text of the CPU, "" elsewhere, and how many processors a process may use.

    A probe is sent that calls the C library, so that a device needs nothing beyond TVM's runtime.
    """
    plain = tvm.target.Target({"kind": "llvm", "mtriple": triple})
    path = np.zeros(64, np.uint8)
    path[: len(CPUINFO)] = np.frombuffer(CPUINFO, np.uint8)
    arrays: list[Array] = [
        path,
        np.zeros(MOST_BYTES, np.uint8),
        np.zeros(MOST_CORES // 8, np.uint8),
        np.zeros(4, np.int32),
    ]
    linked = Linkable([as_object(tirx.build(_probe(), plain, KERNELS))], Linker(triple, linker))
    _, text, usable, counts = device.filled(linked.library().content, arrays)
    content = text[: max(int(counts[1]), 0)].tobytes().decode("ascii", errors="replace")
    return content, max(int(np.unpackbits(usable).sum()), 1)


def _probe() -> tvm.IRModule:
    """main(path, text, usable, counts): reads the file `path`, and asks which processors this process may use."""
    sizes = {
        "path": (64, "uint8"),
        "text": (MOST_BYTES, "uint8"),
        "usable": (MOST_CORES // 8, "uint8"),
        "counts": (4, "int32"),
    }
    path, text, usable, counts = (tirx.decl_buffer((size,), dtype, name) for name, (size, dtype) in sizes.items())

    def asked(place: int, name: str, *arguments: object) -> Any:
        answer = tirx.call_extern("int32", name, *arguments)
        return tirx.BufferStore(counts, answer, [constant(place, "int32")])

    opened = tirx.BufferLoad(counts, [constant(0, "int32")])
    calls = [
        asked(0, "open", path.data, constant(0, "int32")),
        asked(1, "read", opened, text.data, constant(MOST_BYTES, "int64")),
        asked(2, "close", opened),
        asked(3, "sched_getaffinity", constant(0, "int32"), constant(MOST_CORES // 8, "int64"), usable.data),
    ]
    function = tirx.PrimFunc([path, text, usable, counts], tirx.SeqStmt(calls))
    return tvm.IRModule({"main": function.with_attr({"global_symbol": "main", "tirx.noalias": True})})
