"""The lines of the transcript: drawn from blocks, kept, and painted as rows of the terminal."""
