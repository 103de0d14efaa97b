"""The REPL without a full screen (`--plain`): lines only, for screen readers, simple terminals and logs."""
