"""Proof that a candidate computes what its reference computes."""
