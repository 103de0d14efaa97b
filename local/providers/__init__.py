"""The providers of models: which one a session uses, with which key, and what it can do."""
