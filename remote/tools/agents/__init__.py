"""The tool that starts sub-agents, and the definitions of the agents that it can start."""
