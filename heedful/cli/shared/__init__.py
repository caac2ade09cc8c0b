"""What several commands share: how options are read, lines answered, and progress shown."""
