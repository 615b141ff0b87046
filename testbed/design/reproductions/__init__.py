"""Reproductions of papers: their figures computed with our models, beside the published numbers."""
