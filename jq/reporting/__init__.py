"""What is measured and said of a compiled model: errors, times, reports."""
