"""Comparison of sums of operators with whole models, and the parts of the difference."""
