"""What the person has configured on this machine: settings, credentials, keyring; and the log with its redaction."""
