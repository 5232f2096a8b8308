"""Where torch.load is defined."""


def load(f, map_location=None, *, weights_only=True):
    """Return what it was given."""
    return f
