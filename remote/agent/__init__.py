"""The agent loop: prompt in, model calls and tool calls, exactly one result out."""
