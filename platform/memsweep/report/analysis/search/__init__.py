"""The winners of a search, as it saw them and as fresh seeds confirm them."""
