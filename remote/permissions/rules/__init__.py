"""Permission rules: how they are written, kept, suggested and changed."""
