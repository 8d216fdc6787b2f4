"""A benchmark each: `scripts/benchmark.py NAME` runs `main` of the module of that name."""
