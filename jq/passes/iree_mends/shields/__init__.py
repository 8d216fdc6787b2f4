"""What IREE makes of ops that lie beside each other is kept from it, by a barrier between them."""
