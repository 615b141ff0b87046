"""Protocols that several families share: TL1, SCPI, command lines and HTTP."""
