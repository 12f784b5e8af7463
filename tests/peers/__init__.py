"""Launchers of the real peers that tests talk to; every one listens on 127.0.0.1 only."""
