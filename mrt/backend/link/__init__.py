"""All calls as one function on one workspace; machine code in groups."""
