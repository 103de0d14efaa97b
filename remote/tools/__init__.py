"""The tools of the agent. Their names and inputs are those that models are trained on."""
