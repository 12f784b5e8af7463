"""The terminal: headway COMMAND."""
