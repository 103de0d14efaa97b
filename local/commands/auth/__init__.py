"""`ccb auth`: the stored credentials of model providers."""
