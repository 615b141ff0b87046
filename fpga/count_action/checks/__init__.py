"""Checks of a datapath, wherever it comes from: errors, and warnings about possible mistakes."""
