"""The tools of the agent, under the names and with the inputs that models are trained on."""
