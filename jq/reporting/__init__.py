"""Measurements of a compiled model and their presentation: errors, times, reports."""
