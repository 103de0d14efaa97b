"""The worker: session daemon, journal, agent loop, tools and permissions, beside the files.

Standard library of Python 3.9 only, plus `ccb.tunnel.wire`. It prints nothing and holds no credential.
"""
