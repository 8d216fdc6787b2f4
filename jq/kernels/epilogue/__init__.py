"""What happens to an accumulator before it is stored."""
