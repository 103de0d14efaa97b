"""What the clients of a session add to it, and what they may ask of it."""
