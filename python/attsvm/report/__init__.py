"""Claims, tables and pages."""
