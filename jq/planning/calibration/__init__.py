"""Calibration: the float program observes itself on data, and methods choose ranges from that."""
