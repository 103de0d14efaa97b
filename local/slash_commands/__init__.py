"""The slash commands of the laptop: each is one function that returns a reply, which screen, lines and runs draw."""
