"""A model over HTTP, and the page that shows what it sees."""
