"""The host's side of the commands about sessions: `ccb ps`, `logs`, `stop`, `gc`, `clean` and `doctor`."""
