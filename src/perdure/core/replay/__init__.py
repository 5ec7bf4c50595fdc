"""What replay decides: names that repeat themselves, whether a program did what it did before, retries."""
