"""Connections that carry bytes: TCP, PyVISA, serial lines, TLS, SSH and telnet; `lines` makes them from an address."""
