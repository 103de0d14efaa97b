"""What can be completed of the text in the composer, shown in a list above it."""
