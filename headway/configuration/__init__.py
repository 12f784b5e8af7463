"""One TOML file and the environment: read, checked, written for the first time."""
