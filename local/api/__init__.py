"""The Python API: `import ccb`. docs/guide/python-api.md is its manual, and says what its version promises."""
