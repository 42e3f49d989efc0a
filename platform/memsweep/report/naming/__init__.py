"""Names conditions and cells by the fields that a study varies."""
