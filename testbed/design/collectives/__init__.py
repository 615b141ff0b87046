"""Collectives on a wiring: trees and hierarchies laid onto it, and the figures that it should reach."""
