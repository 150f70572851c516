"""The CPU that code is made for: TVM's target, and how wide its vectors are."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import tvm
from tvm.target import codegen

from mrt.compilation import NATIVE, Target, TargetConfig, parse_target
from mrt.errors import CompilationError
from mrt.workers import cores

INSTRUCTIONS = (
    (("avx512vnni", "avx512bw"), 512, 32, "llvm.x86.avx512.vpdpbusd.512", "llvm.x86.avx512.vpdpwssd.512"),
    (("avx512bw",), 512, 32, "", "llvm.x86.avx512.pmaddw.d.512"),
    (("avx512f",), 512, 32, "", ""),
    (("avxvnni", "avx2"), 256, 16, "llvm.x86.avx512.vpdpbusd.256", "llvm.x86.avx512.vpdpwssd.256"),
    (("avx2",), 256, 16, "", "llvm.x86.avx2.pmadd.wd"),
    (("sse2",), 128, 16, "", "llvm.x86.sse2.pmadd.wd"),
    (("dotprod", "neon"), 128, 32, "llvm.aarch64.neon.sdot", ""),
    (("neon",), 128, 32, "", ""),
)
"""By features, the best first: vector bits, vector registers, instructions for products of bytes and of words.

Instructions that saturate, such as pmaddubs, are not among them. Vectors of bytes and words in 512 bits need avx512bw,
without which LLVM cannot make code of them."""

TILES = "amx-int8"
"""The feature of tile registers. Linux gives them to a process that asks, and may refuse."""
TILE_REQUEST = (158, 0x1023, 18)
"""arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), the system call of x86-64 that asks."""

BYTES = "avx512vbmi"
"""The feature of vectors whose bytes are permuted by one instruction."""
PREFERENCES = ("+fast-dpwssd", "-prefer-256-bit")
"""What tells LLVM not to make two instructions of vpdpwssd, whose sum would be there a cycle earlier, since it is their
number that kernels wait for; and to use whole registers where it forms vectors itself, as kernels do."""

TILED_LEVEL = 2
"""LLVM's level of optimization where tiles multiply and one core runs a kernel, which takes a tenth less time than
level 3 and gives code that is as fast. Integers that vectors multiply are a hundredth slower by it, floats in loops
that threads share a tenth."""

FLAGS = {"neon": "asimd", "dotprod": "asimddp"}
"""What Linux calls a feature, where its name is not LLVM's."""


@dataclass(frozen=True)
class Machine:
    """A CPU.

    target: TVM's. vector_bits: width of the vector registers. registers: how many of them. threads: cores that code is
    made for; is_serial: whether it is to start no threads.
    byte_dot: LLVM's instruction that adds four products of bytes to each int32, none if empty; data_is_signed:
    whether it takes the data as int8 and not as uint8, the weights being int8.
    word_dot: the one that adds two products of int16, or that gives their sum.
    has_tiles: whether AMX multiplies tiles of bytes. permutes_bytes: whether one instruction puts the bytes of a vector
    in any order. features: LLVM's names of what the CPU must have for these.
    """

    target: Any
    vector_bits: int
    registers: int
    threads: int
    byte_dot: str = ""
    word_dot: str = ""
    data_is_signed: bool = False
    is_serial: bool = False
    has_tiles: bool = False
    permutes_bytes: bool = False
    features: tuple[str, ...] = ()

    @classmethod
    def generic(cls) -> Machine:
        """Any CPU: vectors of 128 bits, and no instruction that some CPU lacks."""
        return cls(tvm.target.Target("llvm"), 128, 16, cores())

    @classmethod
    def of(cls, target: Target = NATIVE) -> Machine:
        """The machine that `target` names; CompilationError for a key that is wrong, or that LLVM does not know."""
        config = parse_target(target)
        _check_names(config)
        try:
            made = tvm.target.Target(_attributes(config))
        except (ValueError, TypeError, RuntimeError) as error:
            raise CompilationError(f"target {target!r} is not known to TVM: {one_line(error)}") from error
        triple = config.mtriple or codegen.llvm_get_system_triple()
        if triple.startswith("x86_64") and not codegen.target_has_features("64bit", made):
            raise CompilationError(f"target: mcpu is {config.mcpu}, a CPU of 32 bits, and mtriple is {triple}, of 64")
        threads = config.threads or cores()
        for features, bits, registers, of_bytes, of_words in INSTRUCTIONS:
            if all(codegen.target_has_features(feature, made) for feature in features):
                signed, serial = "aarch64" in of_bytes, config.threads == 1
                tiles = "vpdpbusd.512" in of_bytes and bool(codegen.target_has_features(TILES, made))
                if "vpdpwssd.512" in of_words:
                    made = _with(made, "mattr", [*made.export().get("mattr", []), *PREFERENCES])
                if tiles and serial:
                    made = _with(made, "opt-level", TILED_LEVEL)
                permutes = bits == 512 and bool(codegen.target_has_features(BYTES, made))
                used = (*features, *([BYTES] if permutes else []))
                return cls(made, bits, registers, threads, of_bytes, of_words, signed, serial, tiles, permutes, used)
        return cls(made, 128, 16, threads, is_serial=config.threads == 1)


def resolved(target: Target) -> TargetConfig:
    """The same target by the names that `native` and defaults stand for on this machine, in this process."""
    config = parse_target(target)
    attributes = _attributes(config)
    return config.model_copy(
        update={
            "mcpu": attributes.get("mcpu"),
            "mtriple": config.mtriple or codegen.llvm_get_system_triple(),
            "features": tuple(attributes.get("mattr", ())),
            "threads": config.threads or cores(),
        }
    )


def _attributes(config: TargetConfig) -> dict[str, Any]:
    """The same for TVM."""
    attributes: dict[str, Any] = {"kind": config.kind}
    features = [feature if feature[0] in "+-" else f"+{feature}" for feature in config.features]
    if config.is_native:
        attributes["mcpu"] = codegen.llvm_get_system_cpu()
        features = [*_native_features(), *features]
    elif config.mcpu is not None:
        attributes["mcpu"] = config.mcpu
    if config.mtriple is not None:
        attributes["mtriple"] = config.mtriple
    if config.threads is not None:
        attributes["num-cores"] = config.threads
    return attributes | ({"mattr": features} if features else {})


def _with(target: Any, attribute: str, value: Any) -> Any:
    return tvm.target.Target({**target.export(), attribute: value})


def _check_names(config: TargetConfig) -> None:
    """CompilationError for what LLVM knows under no such name: some of that it leaves out, some crashes it."""
    system = codegen.llvm_get_system_triple()
    triple = config.mtriple or system
    if not codegen.llvm_is_valid_cpu("generic", triple):
        raise CompilationError(f"target: mtriple is {triple}; LLVM knows no such machine, one like {system} is needed")
    if config.mcpu == NATIVE and triple.split("-")[0] != system.split("-")[0]:
        raise CompilationError(f"target: mcpu is native, a CPU of {system}, and mtriple is {triple}; name a CPU of it")
    if config.mcpu not in (None, NATIVE) and not codegen.llvm_is_valid_cpu(config.mcpu, triple):
        raise CompilationError(f"target: mcpu is {config.mcpu}; LLVM knows no such CPU of {triple}")
    for feature in config.features:
        name = feature.lstrip("+-")
        has = tvm.target.Target({"kind": "llvm", "mtriple": triple, "mattr": [f"+{name}"]})
        if not codegen.target_has_features(name, has):
            raise CompilationError(f"target: features names {name}; LLVM knows no such feature of {triple}")


@lru_cache(maxsize=1)
def _native_features() -> tuple[str, ...]:
    """Which features of `INSTRUCTIONS` this machine has beyond those of its CPU's name, and which it lacks.

    Virtual machines and operating systems hide features of the CPU; and a model that LLVM does not know is called by
    the name of an older one.
    """
    flags = {flag.replace("_", "") for flag in _flags()}
    named = tvm.target.Target({"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu()})
    differ = []
    for feature in dict.fromkeys([TILES, BYTES, *(name for features, *_ in INSTRUCTIONS for name in features)]):
        has = FLAGS.get(feature, feature.replace("-", "")) in flags and (feature != TILES or _gives_tiles())
        if flags and has != bool(codegen.target_has_features(feature, named)):
            differ.append(f"{'+' if has else '-'}{feature}")
    return tuple(differ)


def _gives_tiles() -> bool:
    """Whether this process may use tile registers."""
    return int(ctypes.CDLL(None).syscall(*TILE_REQUEST)) == 0


def _flags() -> Iterator[str]:
    """What Linux says of the CPU's features; nothing elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith(("flags", "Features")):
                    yield from line.split(":")[1].split()
                    return
    except OSError:
        return


def one_line(error: BaseException) -> str:
    """The line of a TVM error that says what happened: its last one that is no traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(("File ", "^", "Stack trace"))]
    return (said[-1] if said else type(error).__name__)[:300]
