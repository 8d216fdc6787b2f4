"""Elementwise functions that IREE 3.13 approximates badly, in ops whose results are exact."""
