"""Model calls on the wire: their frames, and request bodies as copies of earlier ones, so that a call sends only what
is new in the conversation."""
