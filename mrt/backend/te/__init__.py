"""What computes are written with, and the registry of them."""
