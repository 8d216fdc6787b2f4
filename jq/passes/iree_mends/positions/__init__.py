"""Slices and updates at positions that are found at run time."""
