"""The integer graph while it is built: symbols, multipliers, weights."""
