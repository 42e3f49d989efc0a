"""What commands answer: a document of plain data, made once, and the same data printed for a person."""
