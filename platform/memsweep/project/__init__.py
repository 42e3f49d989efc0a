"""Parts of a project beside its studies: a folder to start from, and published data."""
