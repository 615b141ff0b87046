"""Simulated devices, marked as such: models without sockets, twins on the wire, whole labs in one process."""
