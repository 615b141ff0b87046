"""Simulated devices that say so: models without sockets, twins on the wire, whole labs as a process."""
