"""HTTP to a provider: its address, the way to it, and the one pooled client."""
