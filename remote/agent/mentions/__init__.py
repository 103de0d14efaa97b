"""Files that the model is shown without a call of its own."""
