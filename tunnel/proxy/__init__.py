"""The auth proxy: model calls of the worker get the real credential here, on the laptop, and go to the provider.

A request comes in through `inband.InbandCalls` (frames of the link). `core.AuthProxy` checks it (`policy`), hands it to
a `providers.provider.Provider` and keeps the response (`call`) until the worker has all of it. Import from the modules;
aiohttp is loaded only with them.
"""
