"""The cage: what a command may do is limited by the kernel, whatever our reading of the command said."""
