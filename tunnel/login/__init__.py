"""The parts that every login shares: the prompter, host keys, askpass, and the messages of servers and failed
commands."""
