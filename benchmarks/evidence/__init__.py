"""What is claimed of the models, remade by one command: ``python -m benchmarks.evidence``."""
