"""The service that shares labs over HTTP: runs, leases and lab states, with roles and an audit log."""
