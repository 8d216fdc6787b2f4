#!/usr/bin/env python3
"""A benchmark, by its name.

scripts/benchmark.py                # lists the names
scripts/benchmark.py NAME --help    # describes one
"""

from suites.dispatch import run

if __name__ == "__main__":
    run("benchmark.py", "benchmarks")
