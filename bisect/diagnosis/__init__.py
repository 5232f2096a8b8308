"""What the evidence means: who waits for whom, and whose fault it is. Facts in, facts out."""
