"""Sums of operators: a model's cost as counts times measurements."""
