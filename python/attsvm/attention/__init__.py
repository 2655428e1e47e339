"""The data model: a query attends to a window of tokens."""
