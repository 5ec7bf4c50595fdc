"""`perdure graph`: graphs checked, drawn and deployed from the command line."""
