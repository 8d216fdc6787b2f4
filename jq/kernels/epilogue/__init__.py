"""The epilogue: steps that an accumulator goes through before it is stored."""
