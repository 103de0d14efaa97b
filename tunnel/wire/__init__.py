"""The wire: everything that crosses between laptop and worker, and its NDJSON framing.

This package is the only code that both ends share. It uses the standard library only and runs on Python 3.9.
"""
