"""One session: its inputs, turns and questions, and what is read from its journal."""
