"""The subcommands of ``python -m opcost``, a module for each."""
