"""What a user asks for and a device can do: settings, device tables, targets."""
