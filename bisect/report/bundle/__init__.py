"""One .zip of a run for an attachment: redacted, at most 5 MB, with a manifest."""
