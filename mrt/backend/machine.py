"""The CPU that code is made for: TVM's target, how wide its vectors are, and which features kernels may use."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import tvm
from tvm.target import codegen

from mrt.compilation import NATIVE, Target, TargetConfig, parse_target
from mrt.cpu_flags import cpuinfo, flags_of, is_flagged
from mrt.errors import CompilationError
from mrt.workers import cores

VECTORS = (("avx512f", 512, 32), ("avx2", 256, 16), ("sse2", 128, 16), ("neon", 128, 32))
"""By feature, the best first: bits of vector registers, and how many of these there are."""

TILES = "amx-int8"
"""The feature of tile registers. Linux gives them to a process that asks, and may refuse."""
TILE_REQUEST = (158, 0x1023, 18)
"""arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), the system call of x86-64 that asks."""

GATHERS = "fast-gather"
"""What LLVM says of a CPU whose gathers are faster than loads one by one, as those of Intel are."""

FEATURES = (
    TILES,
    "avx512vbmi",
    "avx512vnni",
    "avx512bw",
    "avx512f",
    "avxvnni",
    "avx2",
    "sse2",
    "dotprod",
    "neon",
)
"""LLVM's names of instructions that kernels use; the folders of `kernels` say which these are."""

UNASKED = (
    *("sse3", "ssse3", "sse4.1", "sse4.2", "sse4a", "avx", "fma", "f16c", "xop", "fma4", "tbm"),
    *("popcnt", "lzcnt", "bmi", "bmi2", "movbe", "gfni"),
    *("avx512cd", "avx512dq", "avx512vl", "avx512ifma", "avx512vbmi2", "avx512bitalg", "avx512vpopcntdq"),
    *("rdm", "i8mm", "sve", "sve2"),
)
"""Those that LLVM uses of its own accord in code for a CPU that has them: no kernel asks for one. What it keeps for who
asks, as for numbers of 16 bits or for ciphers, is not among them."""

DOT_FEATURES = ("avx512vnni", "avx512bw")
"""Those of dots in 512 bits, beside which tiles are used."""
SHORT_DOT_FEATURES = ("avxvnni", "avx2")
"""Those of the same dots in 256 bits."""
ONE_INSTRUCTION = "+fast-dpwssd"
"""Tells LLVM not to make two instructions of vpdpwssd, whose sum would be there a cycle earlier, since it is their
number that kernels wait for."""
WORD_SHIFTS = "-gfni"
"""Tells LLVM to shift bytes as words, and to mask them: GFNI's product of matrices of bits, which does both, takes the
units that multiply on Zen 4."""
DOT_PREFERENCES = (ONE_INSTRUCTION, "-prefer-256-bit", WORD_SHIFTS)
"""With dots in 512 bits LLVM is to use whole registers, too, where it forms vectors itself, as kernels do."""

QUICK_LEVEL = 2
"""LLVM's level of optimization that takes a tenth less time than level 3. It gives code that is as fast where tiles
multiply, and of floats, if one core runs a kernel. Integers that vectors multiply are a hundredth slower by it, floats
in loops that threads share a tenth."""


@dataclass(frozen=True)
class Machine:
    """A CPU.

    target: TVM's. vector_bits: width of the vector registers. registers: how many of them. threads: cores that code is
    made for; is_serial: whether it is to start no threads.
    features: those of FEATURES that kernels may use, and GATHERS.
    """

    target: Any
    vector_bits: int
    registers: int
    threads: int
    is_serial: bool = False
    features: tuple[str, ...] = ()

    def has(self, *features: str) -> bool:
        """Whether kernels may use all of these."""
        return all(feature in self.features for feature in features)

    @property
    def has_tiles(self) -> bool:
        """Whether AMX multiplies tiles of bytes."""
        return self.has(TILES, *DOT_FEATURES)

    @property
    def lanes(self) -> int:
        """How many accumulators, of 32 bits, a vector holds."""
        return self.vector_bits // 32

    @property
    def vector_features(self) -> tuple[str, ...]:
        """What its vectors need."""
        return tuple(name for name, bits, _ in VECTORS if bits == self.vector_bits and self.has(name))

    @property
    def needs(self) -> tuple[str, ...]:
        """LLVM's names of what code that is made for it may use, and a CPU may lack."""
        known = _known_features(self.target)
        return tuple(feature for feature in (*FEATURES, *UNASKED) if feature in known)

    def without(self, feature: str) -> Machine:
        """The same CPU, of which a feature is not used."""
        return replace(self, features=tuple(name for name in self.features if name != feature))

    def compiling_quickly(self) -> Machine:
        """The same CPU, for kernels that run a few times, of floats most of them."""
        return replace(self, target=_with(self.target, "opt-level", QUICK_LEVEL)) if self.is_serial else self

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
        triple, known = config.mtriple or codegen.llvm_get_system_triple(), _known_features(made)
        if triple.startswith("x86_64") and "64bit" not in known:
            raise CompilationError(f"target: mcpu is {config.mcpu}, a CPU of 32 bits, and mtriple is {triple}, of 64")
        threads = config.threads or cores()
        has = tuple(name for name in (*FEATURES, GATHERS) if name in known)
        bits, registers = next(((bits, count) for name, bits, count in VECTORS if name in has), (128, 16))
        machine = cls(made, bits, registers, threads, config.threads == 1, has)
        if machine.has(*DOT_FEATURES):
            made = _with(made, "mattr", [*made.export().get("mattr", []), *DOT_PREFERENCES])
        elif machine.has(*SHORT_DOT_FEATURES):
            made = _with(made, "mattr", [*made.export().get("mattr", []), ONE_INSTRUCTION])
        if machine.has_tiles and machine.is_serial:
            made = _with(made, "opt-level", QUICK_LEVEL)
        return replace(machine, target=made)


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
    named = tvm.target.Target({"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu()})
    return features_beyond(named, cpuinfo(), _gives_tiles)


def features_beyond(named: Any, text: str, gives_tiles: Callable[[], bool]) -> tuple[str, ...]:
    """Which of FEATURES a machine has beyond those of its CPU's name, and what it lacks, by Linux' text of its CPU.

    Virtual machines and operating systems hide features of the CPU; and a model that LLVM does not know is called by
    the name of an older one. named: the target of that name.
    """
    flags, known, differ = flags_of(text), _known_features(named), []
    for feature in (*FEATURES, *UNASKED) if flags else ():
        has = is_flagged(feature, flags) and (feature != TILES or gives_tiles())
        if has and feature not in known and feature in FEATURES:
            differ.append(f"+{feature}")
        elif feature in known and not has:
            differ.append(f"-{feature}")
    return tuple(differ)


def _known_features(target: Any) -> set[str]:
    """All that LLVM knows of the CPU of a target, with what the target adds and takes away."""
    return {str(name) for name in codegen.llvm_get_cpu_features(target)}


def _gives_tiles() -> bool:
    """Whether this process may use tile registers."""
    return int(ctypes.CDLL(None).syscall(*TILE_REQUEST)) == 0


def one_line(error: BaseException) -> str:
    """The line of a TVM error that says what happened: its last one that is no traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(("File ", "^", "Stack trace"))]
    return (said[-1] if said else type(error).__name__)[:300]
