"""The product under attack; see ``python -m benchmarks.reliability``."""
