"""From what a user has (a function, a module, a file) to a traced program."""
