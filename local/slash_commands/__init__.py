"""The slash commands of the laptop: each is one function that returns a reply. The screen, the lines of `--plain` and
headless runs draw the reply."""
