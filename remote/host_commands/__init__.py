"""Commands about the sessions of a host: `ccb ps`, `logs`, `stop`, `gc`, `clean` and `doctor`, where they run."""
