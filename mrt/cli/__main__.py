"""`python -m mrt.cli`."""

from mrt.cli import main

main()
