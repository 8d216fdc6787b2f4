"""Knowledge about each op, and the encodings of the values between ops."""
