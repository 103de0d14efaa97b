"""Images and PDF documents that must be changed before a model can take them."""
