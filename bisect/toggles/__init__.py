"""What can be changed about a job to find out what makes it hang, and how a change is applied."""
