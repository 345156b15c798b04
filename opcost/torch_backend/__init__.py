"""All that touches torch: capturing, rebuilding and running operators."""
