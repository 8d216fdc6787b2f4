"""The commands for devices, one file each, that write files."""
