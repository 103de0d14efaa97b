"""The command line: options and the rules for combining them, help texts, exit codes and error texts."""
