"""Operator tuples, their counts in a model, kinds of input data, and the whitelist."""
