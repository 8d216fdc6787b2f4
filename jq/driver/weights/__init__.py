"""Low-bit weights in one call, for a model or for a StableHLO module."""
