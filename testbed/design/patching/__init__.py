"""Topologies laid onto NICs, switches and patch panels: colouring, planes, patch lists."""
