"""The history that is sent to the model: a projection of the journal."""
