"""`ccb serve`: the screens of ccb in a browser."""
