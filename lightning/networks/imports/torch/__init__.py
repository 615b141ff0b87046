"""Modules of `torch.nn`, traced layer by layer."""
