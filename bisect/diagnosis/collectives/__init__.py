"""Which ranks are in which collective, and where their paths part."""
