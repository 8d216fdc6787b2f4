"""In which order a kernel's work is done, and where its rows go."""
