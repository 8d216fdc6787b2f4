"""A suite each: `scripts/suite.py NAME` runs `main` of the module of that name."""
