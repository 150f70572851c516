"""What a loop in machine code is counted to do."""

from __future__ import annotations

import pytest
from loaded import load_benchmark

from mrt.backend.machine import Machine

instruction_counts = load_benchmark("instruction_counts")

ARM = """
kernel:
.LBB0_1:
	mov	x8, x9
.LBB0_2:
	ldr	q0, [x8], #16
	ld1r	{ v1.4s }, [x9]
	.loc	1 2 3
	sdot	v2.4s, v0.16b, v1.4b[0]
	smlal2	v3.4s, v0.8h, v1.8h
	mul	x10, x10, x11
	subs	x12, x12, #1	// one step less
	b.ne	.LBB0_2
	add	x9, x9, #4
	cbnz	x13, .LBB0_1
	ret
"""
X86 = """
.LBB1_4:
	vmovdqa	-32(%r14,%rcx,8), %ymm0
	vpbroadcastd	(%rdi,%rsi), %ymm15
	vmovdqa	%ymm15, (%rdx)
	vpmaddubsw	%ymm0, %ymm15, %ymm15
	vpmaddwd	(%r8), %zmm15, %zmm15
	vpdpbusd	%xmm1, %xmm2, %xmm3
	jne	.LBB1_4
.LBB1_5:
	jmp	.LBB1_9
"""


@pytest.mark.parametrize(
    ("assembly", "count", "loads", "multiplying", "products"), [(ARM, 7, 2, 2, 16 + 4), (X86, 7, 2, 3, 32 + 32 + 16)]
)
def test_only_the_innermost_loop_is_counted(
    assembly: str, count: int, loads: int, multiplying: int, products: int
) -> None:
    (loop,) = instruction_counts.loops(assembly)
    assert loop == instruction_counts.Loop(loop.mnemonics, loads, multiplying, products)
    assert len(loop.mnemonics) == count


def test_a_layer_for_a_processor_that_is_not_here() -> None:
    machine = Machine.of({"mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1", "threads": 1})
    found = list(
        instruction_counts.loops(instruction_counts.assembly_of("convolution 1 x 1 of 32 channels", "8 bits", machine))
    )
    most = max(found, key=lambda loop: loop.products)
    assert most.mnemonics.count("sdot") * 16 == most.products > 0
    assert 0 < most.loads < len(most.mnemonics) - most.multiplying
