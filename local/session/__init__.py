"""The laptop's end of a session: it sends inputs and receives events, each exactly once, over lost connections."""
