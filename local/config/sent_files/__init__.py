"""Files of the person on the laptop that go to the host with a session."""
