"""What a project has beside its studies: a folder to start from, and published data."""
