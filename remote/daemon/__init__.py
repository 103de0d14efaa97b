"""The daemon of one session: accepts clients, grants epochs, relays model calls, and ends when nobody needs it."""
