"""Prediction of the cost of operators that were not measured."""
