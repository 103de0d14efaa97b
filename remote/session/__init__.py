"""One session: its inputs, turns and requests, and the projections of its journal."""
