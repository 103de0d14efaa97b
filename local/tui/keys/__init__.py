"""The keys that hold everywhere in the REPL: their bindings, and chords that count only if they were pressed alone."""
