"""The cards on which the person answers questions of the worker."""
