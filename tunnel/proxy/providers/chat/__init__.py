"""OpenAI's Chat Completions, and what servers that are compatible with it do differently."""
