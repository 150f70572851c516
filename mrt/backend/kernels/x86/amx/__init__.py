"""Products of bytes in tile registers: AMX.

From operator to instruction: as `x86/vnni` says up to the loops, which `tiles.py` forms in place of
`generic/dot_schedule.py` where it expects tiles to be faster; `instructions.py` then writes tdpbusd and what it needs.
"""
