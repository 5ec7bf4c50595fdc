"""`perdure graph`: checks, draws and deploys graphs."""
