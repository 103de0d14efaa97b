"""Many headless sessions with one prompt and one budget: on hosts, or in tasks of a site's engine."""
