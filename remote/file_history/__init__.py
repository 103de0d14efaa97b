"""The earlier versions of the files that tools have changed, and the prompts to which a person may go back."""
