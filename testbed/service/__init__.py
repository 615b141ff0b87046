"""The service with which people share labs over HTTP: runs, leases and lab states, with roles and an audit log."""
