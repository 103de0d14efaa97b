"""Deployment: the bootstrap over one exec channel, the worker bundle and its cache on the host."""
