"""The PrimFuncs that a Relax module calls, read as the operators of the graph that they compute."""
