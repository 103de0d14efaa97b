"""Commands about models: which there are, and what their calls have asked, used and cost."""
