"""The operator tuple and its counts: what a model calls, and what is kept of it."""
