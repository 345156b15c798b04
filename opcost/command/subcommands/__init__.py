"""The subcommands of ``opcost``, a module for each."""
