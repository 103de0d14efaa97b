"""The widgets of the REPL: transcript, composer, approval card, banner and status line."""
