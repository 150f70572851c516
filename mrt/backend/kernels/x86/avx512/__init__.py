"""What vectors of 512 bits do beside adding up products of bytes: tables, products of int16, packed stores.

From operator to instruction: `computes/table.py` → `lookup.py` → vpgatherdd (AVX512-F). Clip, multiplier and shift that
`rewrites/narrow_to_int16.py` joined → `computes/int16.py` → `multiply_high.py` → vpmulhw, and `requantize_int16.py` →
vpackusdw (AVX512-BW), vpdpwssd (AVX512-VNNI); which bytes are made of these is told by `byte_expression.py`, and what
stores them is written by `packed_store.py` → vpackuswb, vpacksswb. Tables of bytes: `x86/byte_lookup.py`.
Sums of products of int16: as `x86/vnni` says, by the DOTS here.
"""
