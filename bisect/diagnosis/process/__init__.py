"""What one process shows: where it stands, and what it waits for."""
