"""A stand-in for the client of TRL, written from its source."""
