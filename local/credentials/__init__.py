"""The credentials of model providers: where they are kept, and where a session takes them from."""
