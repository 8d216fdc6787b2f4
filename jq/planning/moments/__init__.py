"""What recovery passes are solved with: moments of what products read, and how much rows count."""
