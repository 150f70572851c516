"""The instruction sets that engines are limited to, for fair comparison with machines that lack some."""

ISA = {"native": {}, "vnni": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI", "DNNL_MAX_CPU_ISA": "AVX512_CORE_VNNI"}}
"""What limits oneDNN, which OpenVINO is built with, to an instruction set: variables of a process's environment."""
