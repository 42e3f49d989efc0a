"""Models that a user wrote as plain torch modules: found by their import path, and run as they are."""
