"""Sums of products by the tiles of AMX."""
