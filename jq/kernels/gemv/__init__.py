"""Products of few rows and stored weights."""
