"""The stages of the pipeline: a module for each command."""
