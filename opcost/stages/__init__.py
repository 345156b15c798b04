"""Stages of the pipeline and of other commands, and the data that several of them read."""
