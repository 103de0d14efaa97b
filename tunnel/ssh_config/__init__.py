"""ssh_config as ssh means it: from `ssh -G` where OpenSSH is present, else from the files."""
