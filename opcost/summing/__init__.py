"""Counts x measurements: what a model costs by its parts."""
