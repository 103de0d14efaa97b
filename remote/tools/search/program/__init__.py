"""The search program. It runs in a process of its own, so its modules import only each other and the standard
library."""
