"""Which values may share memory, and what compilers are told for it."""
