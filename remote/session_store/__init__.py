"""Session store."""
