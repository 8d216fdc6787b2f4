"""What a program is planned with, and its plan: ranges, moments, decisions."""
