"""What is done to rows between two products, as one kernel."""
