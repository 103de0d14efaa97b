"""The link: frames over the pipe of one worker, with credit, liveness and the refusals that end it."""
