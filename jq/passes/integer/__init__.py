"""Markers become integer arithmetic."""
