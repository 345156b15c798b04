"""Devices, campaigns and the process that measures."""
