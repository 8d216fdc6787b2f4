"""The plan of a program, and what it is made from: ranges, moments, decisions."""
