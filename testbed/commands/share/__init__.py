"""Commands for sharing labs: leases, the emergency stop, the audit log, tokens, backups."""
