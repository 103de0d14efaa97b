"""Read ssh_config as ssh does: with `ssh -G` if OpenSSH is installed, else from the files."""
