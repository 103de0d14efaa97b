"""The sessions of a host as the commands show them: the table of `ccb ps`, and the list to choose one from."""
