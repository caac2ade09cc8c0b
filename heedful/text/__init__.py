"""Text in: files read in constant memory, vocabularies, tokenised corpora, and which examples make up a step."""
