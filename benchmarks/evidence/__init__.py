"""Evidence for claims about the models, recomputed by ``python -m benchmarks.evidence``."""
