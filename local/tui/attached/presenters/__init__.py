"""What keeps the status line, the banner and whatever else changes with time up to date."""
