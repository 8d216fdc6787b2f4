#!/usr/bin/env python3
"""A check of the compiler against something else, by its name.

scripts/check.py                # lists the names
scripts/check.py NAME --help    # describes one
"""

from suites.dispatch import run

if __name__ == "__main__":
    run("check.py", "checks")
