"""Shields: barriers between ops that IREE would compute together, and wrongly."""
