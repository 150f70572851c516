"""Running a compiled model: it needs the one file, NumPy and TVM's runtime, nothing else of MRT's stages."""

from mrt import lean_tvm as _lean_tvm  # before anything that imports TVM
from mrt.runtime.code import Executable, Library, Linkable, virtual_machine
from mrt.runtime.device import THIS_DEVICE, Device
from mrt.runtime.linker import THIS_MACHINE, Linker
from mrt.runtime.metadata import CALLS, MAIN, MEMORY, METADATA, REAL, REQUEST, KeptState, Metadata
from mrt.runtime.module import Module, load_module
from mrt.runtime.rpc.device import device_at, open_device

del _lean_tvm

__all__ = [
    "CALLS",
    "MAIN",
    "MEMORY",
    "METADATA",
    "REAL",
    "REQUEST",
    "THIS_DEVICE",
    "THIS_MACHINE",
    "Device",
    "Executable",
    "KeptState",
    "Library",
    "Linkable",
    "Linker",
    "Metadata",
    "Module",
    "device_at",
    "load_module",
    "open_device",
    "virtual_machine",
]
