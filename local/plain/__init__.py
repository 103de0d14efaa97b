"""The REPL without a full screen (`--plain`): lines only, for screen readers, simple terminals and logs.

What it shows is what the full REPL shows, by the same model of the conversation; it never moves the cursor."""
