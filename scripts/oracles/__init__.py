"""Writers of the expected results of other tools that tests commit."""
