"""Markers are placed where the plan wants them, and moved to what computes."""
