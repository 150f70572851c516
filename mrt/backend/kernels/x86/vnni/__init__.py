"""Products of bytes and of int16 in vectors: AVX512-VNNI, AVX-VNNI.

From operator to instruction: `computes/convolution.py` or `computes/linear.py` → `choose_dot` (`dot_instructions.py`)
takes one of DOTS (`dots.py`) → `generic/dot.py` packs the weights for it and states the sums →
`generic/dot_schedule.py` tiles their loops → `dot_intrinsic.py` puts the instruction in. Depthwise convolutions:
`computes/convolution.py` → `depthwise.py`, which writes the instructions itself.
"""
