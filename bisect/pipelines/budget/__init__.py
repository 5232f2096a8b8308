"""How much memory a training will need, worked out before anything is loaded."""
