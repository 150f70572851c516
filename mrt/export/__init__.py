"""Writing integer graphs in the formats of others."""
