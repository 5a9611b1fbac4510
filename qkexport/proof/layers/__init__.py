"""Localization of errors: which attention, and what is wrong with it."""
