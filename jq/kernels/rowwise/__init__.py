"""Work on the rows of a matrix."""
