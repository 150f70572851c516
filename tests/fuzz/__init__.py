"""Random graphs, networks, files and saved models against what MRT promises of them: `python -m tests.fuzz`."""
