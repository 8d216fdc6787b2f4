"""Work on rows between two products, as one kernel."""
