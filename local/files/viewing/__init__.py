"""Files of the host that the person looks at on the laptop: fetched to a private place, named by what they are, and
opened after a key press."""
