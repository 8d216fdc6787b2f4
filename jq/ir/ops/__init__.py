"""What is known of each op, and how the values between ops are encoded."""
