"""The dashboard: its built files, and the application that serves them. `dashboard/` has the sources."""
