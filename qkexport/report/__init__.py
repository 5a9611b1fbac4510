"""Parity results for terminals, machines, CI systems and browsers."""
