"""Sources of models."""
