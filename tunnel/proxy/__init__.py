"""The auth proxy: model calls of the worker get the real credential here, on the laptop, and go to the provider.

A request comes in through `link_front.LinkFront` (frames of the link). `auth_proxy.AuthProxy` checks it (`policy`),
hands it to a provider (`providers.model_router`) and keeps the response (`proxied_call`) until the worker has it."""
