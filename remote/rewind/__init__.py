"""Going back to an earlier prompt: files, conversation, or both."""
