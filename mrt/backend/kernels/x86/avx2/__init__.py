"""Products of int16 in vectors of 256 bits, and of 128: AVX2, SSE2. The way to them is that of `x86/vnni`.

What is done with their sums: `requantize_int16.py`, and tables looked up for full vectors, `joined_lookups.py`.
"""
