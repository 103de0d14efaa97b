"""What calls the kernel to make cages. It runs in one process, which loads the modules by their sources (see
`cage_server`)."""
