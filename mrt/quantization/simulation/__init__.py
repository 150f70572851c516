"""What a quantization does to a network's outputs, before it is made.

The float network runs with its tensors rounded to the grids of a plan (`rounded_graph`) and with the weights that the
integers stand for. Grids are inputs, so that one compiled graph tries many plans (`simulation`). What happens within an
operator, such as the steps of a softmax, is not simulated: SQNRs come within a few tenths of a dB of the integers'.
"""
