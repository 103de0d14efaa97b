"""What a session tells about itself beside its transcript: tasks, todos and totals."""
