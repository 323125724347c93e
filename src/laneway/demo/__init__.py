"""A run that shows what laneway does."""
