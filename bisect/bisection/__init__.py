"""The proof: what can be changed, and which smallest change makes a hang go away. Pure."""
