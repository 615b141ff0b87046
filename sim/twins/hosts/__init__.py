"""Simulated servers: network namespaces of the kernel, and redirects between them in place of light."""
