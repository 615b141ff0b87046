"""Connections that carry bytes: TCP, PyVISA, serial lines, TLS, SSH and telnet; `lines` creates them from addresses."""
