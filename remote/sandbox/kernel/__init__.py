"""What calls the kernel to make cages, in one process, which loads the modules by their sources (see `cage_server`)."""
