"""What people and programs read: verdicts as text and JSON, stacks as text. Facts in, text out."""
