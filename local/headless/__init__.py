"""Headless runs (`-p`): prompt and stream-json in, text, JSON or stream-json out, one exit code at the end."""
