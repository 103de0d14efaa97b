"""The auth proxy: model calls of the worker get the real credential here, on the laptop, and go to the provider.

`core.AuthProxy` is shared by two fronts: `inband.InbandCalls` (frames of the link) and `http_front.HttpFront` (HTTP on a
unix socket). Import from the modules; aiohttp is loaded only with them.
"""
