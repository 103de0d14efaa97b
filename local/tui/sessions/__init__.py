"""Going from one session of a host to another without leaving the REPL: the list of sessions, and the switch."""
