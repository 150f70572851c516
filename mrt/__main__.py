"""`python -m mrt`, where no `mrt` is on the path."""

from mrt.cli import main

main()
