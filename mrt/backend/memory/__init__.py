"""How one tensor lies in memory: innermost axis, padding, border, alignment."""
