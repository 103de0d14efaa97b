"""From a command line to a session: reach the host, start the worker, hand the link to `ccb.local.session`."""
