"""Graph to graph: the same integers by operators that compile to less."""
