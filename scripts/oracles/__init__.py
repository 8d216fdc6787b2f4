"""What writes the expected results of other tools that tests commit."""
