"""Hosts over SSH: parallel commands, probes, pings, and routes between hosts."""
