"""How the screen is painted, and who goes first."""
