"""Record kinds and request kinds of single subjects, one module each."""
