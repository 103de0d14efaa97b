"""From a command line to a session: reach the host, start the worker, hand its link to `ccb.local.session`."""
