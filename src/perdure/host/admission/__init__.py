"""Admission: decides on starts of limited programs, and begins the runs that may begin."""
