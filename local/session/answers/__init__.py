"""What this laptop does when the worker asks it."""
