"""What is done to the rows of a matrix."""
