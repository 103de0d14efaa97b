"""Drawing: blocks of the transcript, tool output and diffs become styled text."""
