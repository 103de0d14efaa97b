"""What the REPL is made of on the screen: transcript, composer, approval card, banner and status line."""
