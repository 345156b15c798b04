"""The cost of operators that were not measured."""
