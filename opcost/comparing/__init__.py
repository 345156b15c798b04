"""The sum of the parts beside the measured whole, and what lies between."""
