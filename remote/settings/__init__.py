"""Settings as the worker sees them: merged from all sources, each value with its origin."""
