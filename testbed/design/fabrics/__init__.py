"""Fabrics by name, ready to run jobs on."""
