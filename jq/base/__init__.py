"""The foundation: errors, files, processes, the machine, tables of text."""
