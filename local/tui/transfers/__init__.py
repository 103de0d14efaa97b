"""Files between the two machines, on the screen: the copies that run, and the file that is about to be opened."""
