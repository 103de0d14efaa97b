"""What the person has set on this machine: settings, credentials and keyring; and the log, with its redaction."""
