"""Simulated servers: kernel network namespaces. Packet redirects between them replace optical links."""
