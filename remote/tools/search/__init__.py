"""The search program: lists and greps a tree. It runs in a process of its own (see `tools.searching`), so that a slow
pattern can be stopped and memory is given back; its modules import nothing but the standard library and each other."""
