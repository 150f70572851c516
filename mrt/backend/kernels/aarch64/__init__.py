"""Products of signed bytes in vectors of 128 bits: the dot products of Armv8.2. The way to them is that of `x86/vnni`.

What else runs on aarch64 is plain arithmetic, of which LLVM makes NEON's instructions.
"""
