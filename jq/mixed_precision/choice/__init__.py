"""Which format an op gets, where there is a choice: what both `auto` and a search decide with."""
