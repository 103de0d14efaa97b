"""The command line: its options, what they mean together, help texts, exit codes and error texts."""
