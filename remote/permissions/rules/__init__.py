"""Permission rules: their syntax, the set of rules in force, and updates to it."""
