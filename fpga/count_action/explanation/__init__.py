"""Explanation of a datapath: facts, and drawings as text and as SVG."""
