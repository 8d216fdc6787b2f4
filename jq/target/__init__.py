"""A user's wishes and a device's abilities: settings, device tables, targets."""
