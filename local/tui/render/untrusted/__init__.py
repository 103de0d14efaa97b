"""Text that the host or the model wrote, made safe to draw: exact pictures, warnings, and the last filter."""
