"""The instruction sets that engines are limited to, for fair comparison with machines that lack some."""


def _one_dnn(level: str) -> dict[str, str]:
    return {"ONEDNN_MAX_CPU_ISA": level, "DNNL_MAX_CPU_ISA": level}


ISA = {"native": {}, "vnni": _one_dnn("AVX512_CORE_VNNI"), "avx2": _one_dnn("AVX2")}
"""What limits oneDNN, which OpenVINO is built with, to an instruction set: variables of a process's environment."""
FEATURES = {"native": (), "vnni": ("-amx-int8",), "avx2": ("-amx-int8", "-avx512f", "-avxvnni")}
"""LLVM's names of what MRT's own code does without; what needs one of these goes with it."""
