"""The torch backend: capturing, rebuilding and running operators."""
