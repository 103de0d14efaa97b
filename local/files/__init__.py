"""Files and folders between the laptop and a host: no worker, one program that is sent for one copy."""
