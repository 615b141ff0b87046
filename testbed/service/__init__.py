"""The service that several people share: runs, leases and the state of labs over HTTP, with roles and an audit log."""
