"""Reproductions of papers: figures computed with our models, beside the published numbers."""
