"""Shell command lines: read by our own parser, and judged by what they read, write and run."""
