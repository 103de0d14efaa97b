"""Turn a command line into a session: reach the host, start the worker, and hand its link to `ccb.local.session`."""
