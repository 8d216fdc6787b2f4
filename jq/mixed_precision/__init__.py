"""Mixed precision within a budget: a format for each layer."""
