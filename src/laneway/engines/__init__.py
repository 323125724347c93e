"""Engines: where an app runs."""
