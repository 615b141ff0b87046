"""Hosts over SSH: commands on all at once, probes, pings, and routes between hosts."""
