"""The version of MRT, a PEP 440 string."""

__version__ = "0.1.0.dev0"
