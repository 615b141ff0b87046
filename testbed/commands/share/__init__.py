"""Commands about what people share: leases, the emergency stop, the audit log, tokens, backups."""
