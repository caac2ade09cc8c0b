"""`heedful serve`: an HTTP process without torch, and one worker process for each model."""
