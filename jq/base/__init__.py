"""What everything stands on: errors, files, processes, the machine, tables of text."""
