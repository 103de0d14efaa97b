"""The stdin of a headless run."""
