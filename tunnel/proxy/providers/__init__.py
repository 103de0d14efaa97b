"""The upstream model APIs that the auth proxy can call, each behind the protocol `provider.Provider`."""
