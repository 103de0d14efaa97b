"""The table of options in parts: how an option is declared, and the options of programs that drive ccb."""
