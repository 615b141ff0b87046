"""Quantisation: the schemes `published` and `scaled`, and the ranges measured on samples."""
