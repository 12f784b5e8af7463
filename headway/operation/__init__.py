"""What operators do and are told, and what stands between a plan and its target."""
