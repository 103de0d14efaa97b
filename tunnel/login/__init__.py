"""What every login shares: the prompter, host keys, askpass, and what servers and failed commands say."""
