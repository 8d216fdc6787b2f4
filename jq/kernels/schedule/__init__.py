"""The order in which a kernel's work is done, and where its rows go."""
