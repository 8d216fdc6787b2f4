#!/usr/bin/env python3
"""A suite of cases, by its name.

scripts/suite.py                # lists the names
scripts/suite.py NAME --help    # describes one
"""

from suites.dispatch import run

if __name__ == "__main__":
    run("suite.py", "suites.commands")
