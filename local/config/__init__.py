"""The configuration of this machine (settings, credentials, keyring), and the log with its redaction."""
