"""report.md: what a person pastes into an issue."""
