"""A check each: `scripts/check.py NAME` runs `main` of the module of that name."""
