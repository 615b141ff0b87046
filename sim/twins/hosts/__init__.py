"""Simulated servers: kernel network namespaces, with kernel redirects between them in place of optical links."""
