"""The laptop's end of a session: inputs out, events in, each exactly once, over as many connections as it takes."""
