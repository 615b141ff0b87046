"""Protocols that several vendors speak, each as a pure codec and a session that uses it over a transport.

session                the base of all sessions
tl1, tl1_session       TL1
scpi, scpi_session     SCPI
http, http_session     HTTP/1.1, for REST interfaces
cli, cli_session       a command line with a prompt
"""
