"""From a graph to calls, from a region to a PrimFunc, from a PrimFunc to its schedule."""
