"""Going back to an earlier prompt on the screen."""
