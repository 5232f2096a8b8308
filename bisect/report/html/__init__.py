"""report.html: a run in one file, for eyes, that needs nothing from elsewhere."""
